"""Recordings kept in a folder, so that a changed model is scored in minutes.

The name of a kept file is a hash of everything that a recording depends on: the PTX text, the arguments, and the
source of what records. So a kept recording is always the one that would be made now.
"""

from __future__ import annotations

import hashlib
import pickle
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from warploom.lab import evidence
from warploom.operators.kernel_cache import source_hash
from warploom.runtime import on_clock
from warploom.runtime.bind import Shape, bind
from warploom.runtime.dispatch import complete, look, sort_out
from warploom.runtime.machine import for_arch
from warploom.runtime.program import Program, program_of
from warploom.timing import Launch
from warploom.timing.recording import Recording

RECORDING = (
    "asm", "emulator", "isa", "runtime/on_clock.py", "runtime/own_lines.py", "driver/sass_lines.py",
    "timing/accesses.py", "timing/arrivals.py", "timing/caches.py", "timing/constants.py", "timing/contention.py",
    "timing/dataflow.py", "timing/drawn.py", "timing/fusion.py", "timing/instructions.py", "timing/left_out.py",
    "timing/machine_code.py", "timing/machine_loops.py", "timing/occupancy.py", "timing/ordering.py",
    "timing/queues.py", "timing/rates.py", "timing/recorder.py", "timing/recording.py", "timing/sampling.py",
    "timing/subroutines.py",
)  # fmt: skip
"""The sources of what records; what replays is not among them."""
SHAPES = ("out", "grid", "block", "cluster", "entry", "dynamic_smem", "clusters", "warm", "registers")
"""The options of `on_clock.record` that are no scalars of the kernel."""
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


class Recordings:
    """Records launches, or finds their recordings in `folder`; without a folder it only records.

    texts: hashes of the texts that were asked for since it was last emptied (`evidence.ptx_sha256`).
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.texts: list[str] = []

    def record(self, program: Any, *args: Any, **options: Any) -> tuple[Recording, Launch]:
        """As `on_clock.record`."""
        chosen = program_of(program, entry=options.get("entry"))
        self.texts.append(evidence.ptx_sha256(chosen.text))
        if self.folder is None:
            return on_clock.record(chosen, *args, **options)
        path = self.folder / f"{name_of(chosen, args, options)}.pickle"
        if path.exists():
            found: tuple[Recording, Launch] = pickle.loads(path.read_bytes())
            return found
        made = on_clock.record(chosen, *args, **options)
        self.folder.mkdir(parents=True, exist_ok=True)
        path.write_bytes(pickle.dumps(made))
        return made


def name_of(program: Program, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """The name of a recording's file."""
    call = sort_out(program, args, options.get("out"), {k: v for k, v in options.items() if k not in SHAPES})
    arguments, _ = complete(call, look(call))
    shape = Shape(*(options.get(name) for name in ("grid", "block", "cluster", "dynamic_smem")))
    bound = bind(program, arguments, for_arch(program.arch), shape)
    launch = bound.grid, bound.block, bound.cluster, bound.dynamic_smem, program.pdl
    maps = _ADDRESS.sub("", repr(program.parameters))
    digest = hashlib.sha256(f"{source()}\n{evidence.bare(program.text)}\n{program.entry} {launch} {maps}".encode())
    for part in _parts((args, sorted((name, value) for name, value in options.items() if name != "out"))):
        digest.update(part)
    return digest.hexdigest()[:32]


def _parts(value: Any) -> Iterator[bytes]:
    if isinstance(value, (tuple, list)):
        for one in value:
            yield from _parts(one)
    elif isinstance(value, np.ndarray):
        raw = np.ascontiguousarray(value).view(np.uint8) if value.size else value
        yield f"{value.dtype} {value.shape} ".encode() + (raw.tobytes() if raw.any() else b"zeros")
    elif hasattr(value, "detach"):  # a tensor of torch
        import torch

        yield f"{value.dtype} ".encode()
        yield from _parts(value.detach().view(torch.uint8).numpy() if value.dim() else value.item())
    else:
        yield f"{value!r} ".encode()


@lru_cache(maxsize=1)
def source() -> str:
    """Hash of the sources of what records."""
    return source_hash(RECORDING)
