"""Run this package's sm_100 kernels on such a GPU, compare with the emulator's predictions, and write a report.

    python examples/blackwell/check.py [--out blackwell-report.json] [--only WORD] [--emulate]

Every case runs in its own process with a time limit: a kernel that hangs or faults costs one row of the report. The
emulator predicts the result first, with the published models of the matrix unit (numerics="hardware"); the comparison
is bit for bit. The authors have not run any of this on hardware: your report would change that.

--emulate uses the emulator, under another schedule, instead of the GPU: a dry run of this program.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from moving_primitives import PRIMITIVES

import warploom
from warploom.kernels.blackwell import attention, block_scaled, gemm, grouped, minimal, small_m, specialised
from warploom.kernels.blackwell.description import Config
from warploom.kernels.hopper.attention_config import Attention
from warploom.lab.evidence import ptx_sha256
from warploom.runtime.machine import for_arch

LIMIT_S = 120
OTHER = "for another GPU"
"""The outcome of a case whose kernel is for another target than the machine's."""


@dataclass(frozen=True)
class Case:
    """A kernel, its inputs, and an output to fill.

    Attributes:
        numbers: scalars by name.
        close: tolerance of an element, if the kernel uses instructions whose last bits are unspecified.
    """

    name: str
    kernel: Callable[[], Any]
    inputs: Callable[[], tuple[np.ndarray, ...]]
    shape: tuple[int, ...]
    dtype: Any = ml_dtypes.bfloat16
    numbers: dict[str, Any] = field(default_factory=dict)
    close: float = 0.0


def _normal(*shapes: tuple[int, int], dtype: Any = ml_dtypes.bfloat16) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in shapes)


def _scaled() -> tuple[np.ndarray, ...]:
    """Operands of mxfp8 and atoms of scale factors 2^-3 to 2^3."""
    codes = np.random.default_rng(1).integers(124, 131, (2, 3, 512)).astype(np.uint8)
    return *_normal((130, 384), (136, 384), dtype=ml_dtypes.float8_e4m3fn), codes, codes[::-1].copy()


def _scaled_4() -> tuple[np.ndarray, ...]:
    """Operands of nvfp4, two elements per byte, and atoms of scale factors from 1/2 to 4."""
    rng = np.random.default_rng(2)
    a, b = (rng.integers(0, 256, (rows, 384), np.uint8) for rows in (130, 136))
    return a, b, *(rng.integers(0x30, 0x48, (2, 12, 512), np.uint8) for _ in range(2))


CASES = (
    *(Case(each.name, lambda kernel=each.kernel: kernel, tuple, each.expected.shape, each.expected.dtype)
      for each in PRIMITIVES),
    Case("minimal", minimal.build, lambda: _normal((200, 136), (136, 136)), (200, 136)),
    Case("specialised", specialised.build, lambda: _normal((260, 200), (264, 200)), (260, 264)),
    Case("one CTA, launch control", lambda: gemm.build(Config(128, 128, 4)), lambda: _normal((260, 200), (264, 200)),
         (260, 264)),
    Case("pair 256 x 128", lambda: gemm.build(Config(256, 128, 8)), lambda: _normal((260, 200), (136, 200)),
         (260, 136)),
    Case("pair 256 x 256", gemm.build, lambda: _normal((260, 200), (264, 200)), (260, 264)),
    Case("mxfp8", block_scaled.build, _scaled, (130, 136)),
    Case("nvfp4", lambda: block_scaled.build(block_scaled.Config(block_scaled.NVFP4)), _scaled_4, (130, 136)),
    Case("few rows", small_m.build, lambda: _normal((5, 520), (136, 520)), (5, 136)),
    Case("groups", lambda: grouped.build(config=Config(128, 64, 4), limits="offsets"),
         lambda: (*_normal((200, 136), (3 * 72, 136)), np.array([70, 70, 200], np.int32)), (200, 72)),
    *(Case(f"attention {wide}",
           lambda wide=wide: attention.build(Attention(head_dim=wide, value_dim=wide, window_right=True)),
           lambda wide=wide: _normal((1, 130, 2, wide), (1, 150, 2, wide), (1, 150, 2, wide)), (1, 130, 2, wide),
           numbers={"scale": np.float32(0.18), "section": np.uint32(1), "last": np.int32(20)}, close=2**-6)
      for wide in (64, 128)),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}


def predicted(case: Case) -> np.ndarray:
    """The emulator's result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nobody recorded this hardware: that is what this is for
        return emulated(case, sms=16)


def emulated(case: Case, sms: int, **how: Any) -> np.ndarray:
    """The first output in the emulator."""
    kernel = case.kernel()
    report = kernel.emulate(
        *case.inputs(), check=False, numerics="hardware", machine=replace(for_arch(str(kernel.arch)), sms=sms),
        **outputs(case, np.zeros), **case.numbers, **how,
    )  # fmt: skip
    return report.outputs[-2 if case.name.startswith("attention") else -1]


def outputs(case: Case, make: Callable[..., Any]) -> dict[str, Any]:
    """The buffers that a call fills: the output, and attention's logarithms of sums."""
    made = make(case.shape, case.dtype)
    if not case.name.startswith("attention"):
        return {"out": made}
    batch, queries, heads, _ = case.shape
    return {"out": (made, make((batch, heads, queries), np.float32))}


def run(case: Case, emulate: bool) -> np.ndarray:
    """The output of one launch."""
    if emulate:
        return emulated(case, sms=12, schedule="random", seed=1)
    import torch

    def moved(array: np.ndarray) -> Any:
        bits = torch.from_numpy(np.ascontiguousarray(array).view(f"u{array.itemsize}")).cuda()
        return bits.view(getattr(torch, array.dtype.name))

    given = outputs(case, lambda shape, dtype: moved(np.zeros(shape, dtype)))
    case.kernel()(*map(moved, case.inputs()), **given, **case.numbers)
    torch.cuda.synchronize()
    out = given["out"] if not isinstance(given["out"], tuple) else given["out"][0]
    width = np.dtype(case.dtype).itemsize
    return out.view({1: torch.uint8, 2: torch.uint16, 4: torch.uint32}[width]).cpu().numpy().view(case.dtype)


def compared(case: Case, got: np.ndarray) -> dict[str, Any]:
    """The row of a case that ran."""
    wanted = predicted(case)
    width = f"u{wanted.itemsize}"
    different = np.argwhere(wanted.view(width) != got.view(width))
    row: dict[str, Any] = {"outcome": "different" if len(different) else "same bits", "elements": wanted.size}
    if len(different):
        first = tuple(int(index) for index in different[0])
        most = float(np.nanmax(np.abs(wanted.astype(float) - got.astype(float))))
        row |= {"different": len(different), "first": first, "predicted": float(wanted[first]),
                "got": float(got[first]), "largest_difference": most}  # fmt: skip
        if most <= case.close and not np.isnan(got.astype(float)).any():
            row["outcome"] = "close"
    return row


def checked(case: Case, emulate: bool) -> dict[str, Any]:
    """One row of the report; the launch runs in its own process."""
    text = case.kernel().ptx()
    head = {"case": case.name, "ptx_sha256": ptx_sha256(text)}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "out.npy")
        command = [sys.executable, __file__, "--run", case.name, "--result", str(place)] + ["--emulate"] * emulate
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return head | {"outcome": "no end", "seconds": LIMIT_S}
        if done.returncode:
            return head | {"outcome": "failed", "error": done.stderr[-2000:]}
        bits = np.load(place)
    return head | compared(case, bits.view(case.dtype).reshape(case.shape))


def suits(case: Case, where: dict[str, Any]) -> bool:
    """Whether the machine runs the target of the case; the emulator runs all."""
    capability = where.get("capability")
    return capability is None or str(case.kernel().arch) == f"sm_{capability.replace('.', '')}a"


def machine(emulate: bool) -> dict[str, Any]:
    """The machine and its software."""
    found = {"warploom": warploom.__version__, "python": platform.python_version()}
    if emulate:
        return found | {"gpu": "the emulator, in place of a GPU"}
    import torch

    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 10:
        sys.exit("this needs a GPU of sm_100 and torch; --emulate tries the program without one")
    major, minor = torch.cuda.get_device_capability()
    return found | {"gpu": torch.cuda.get_device_name(), "capability": f"{major}.{minor}", "torch": torch.__version__,
                    "cuda": torch.version.cuda}  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="blackwell-report.json")
    parser.add_argument("--only", default="", help="cases whose name has this word")
    parser.add_argument("--emulate", action="store_true")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--result", help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.run:
        out = run(BY_NAME[asked.run], asked.emulate)
        np.save(asked.result, np.ascontiguousarray(out).view(np.uint8))
        return 0
    where = machine(asked.emulate)
    rows = []
    for case in CASES:
        if asked.only in case.name:
            rows.append(checked(case, asked.emulate) if suits(case, where) else {"case": case.name, "outcome": OTHER})
            print(f"{case.name:26} {rows[-1]['outcome']}", flush=True)
    Path(asked.out).write_text(json.dumps({"machine": where, "rows": rows}, indent=1) + "\n")
    print(f"written to {asked.out}")
    return int(any(row["outcome"] not in ("same bits", "close", OTHER) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
