"""A fuzz case: a text, however odd, is read, parsed, verified and briefly emulated."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from warploom import TensorMap, asm, emulate
from warploom.errors import WarploomError
from warploom.kernels import walkthrough
from warploom.runtime import Program
from warploom.sanitizer.rules import RULES

FOREIGN = Path(__file__).resolve().parents[1] / "foreign"
LARGEST = 40_000
"""Most characters of a text: longer ones take long and reveal nothing new."""
SECONDS = 60
"""Seconds after which a case hangs; a normal one takes a small part of a second."""


@lru_cache(maxsize=1)
def texts() -> tuple[str, ...]:
    """Real texts: of nvcc, of Triton, by hand, of this package; and the examples of the sanitizer's rules."""
    found = [path.read_text() for path in sorted(FOREIGN.rglob("*.ptx"))]
    found.append(walkthrough.build_gemm_m64n64(64, 64, 32).program().text)
    for rule in RULES.values():
        found += [example.text() for example in (rule.bad, rule.good) if example is not None]
    return tuple(text for text in found if len(text) <= LARGEST)


class Hangs(AssertionError):
    """A case did not end."""


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    """Raise Hangs if the body takes longer."""

    def ring(*_: object) -> None:
        raise Hangs(f"no answer after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(text: str, steps: int = 3000) -> str:
    """Process a text as far as possible: "refused", "stopped" or "ran"; any other exception is raised."""
    with limited():
        try:
            module = asm.parse(text, name="fuzz.ptx")
            errors = asm.verify(module)
            module.to_text()
            if errors or not module.entries:
                return "refused"
            program = Program.from_text(text, entry=module.entries[0].name, name="fuzz.ptx", grid=(2, 1, 1))
        except WarploomError as error:
            assert str(error)
            return "refused"
        try:
            emulate(
                program, *arguments(program), block=program.block or (128, 1, 1), grid=(program.cluster[0], 1, 1),
                dynamic_smem=64 << 10 if ".extern" in text else 0, max_steps=steps,
            )  # fmt: skip
        except WarploomError as error:
            assert str(error)
            return "stopped"
        return "ran"


def arguments(program: Program) -> list[Any]:
    """A value for each parameter."""
    made: list[Any] = []
    for parameter in program.parameters:
        if parameter.kind == "tensor_map":
            made.append(TensorMap.tiled(np.zeros((64, 64), np.uint16), dtype="bf16", box=(64, 64), swizzle="128B"))
        elif parameter.kind == "pointer":
            made.append(np.zeros(1 << 16, np.uint32))
        elif parameter.kind == "blob":
            made.append(np.zeros(min(max(parameter.size, 1), 4096), np.uint8))
        else:
            dtype = parameter.dtype
            made.append(dtype.numpy.type(8) if dtype is not None and dtype.bits >= 8 else np.uint32(8))
    return made
