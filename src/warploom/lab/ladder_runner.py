"""Climbing the ladder: each rung on this machine, each in a separate process.

On a GPU a rung reports correctness, speed, cuBLAS in the same run, its own clock and its resources; a rung that hangs
or faults costs only its own row. Without a GPU it is emulated and reports what explains its speed: bytes, barriers,
MMAs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..emulator.machine.finding import Finding
from ..errors import ArgumentError
from ..isa import arch as arches
from ..isa.effects import Starts
from ..isa.instructions.table import FORMS, MATRIX_UNITS
from ..kernels.fallback_hint import other_rungs
from ..kernels.hopper.description import TILE_K_BYTES
from ..kernels.ladder import RUNGS, Rung, find

GPU_SIZE = 8192
TIMEOUT_S = 240
FP32_SIZE, TENSOR_SHAPE = 128, (512, 768, 256)
"""The emulated sizes by default: small for a loop per thread, whole tiles of every rung otherwise."""

ASYNC_UNITS = {form.unit for form in FORMS if form.unit and any(isinstance(each, Starts) for each in form.effects)}
"""Instructions that read their operands from shared memory themselves."""


def chosen(text: str) -> tuple[Rung, ...]:
    """The rungs of "4,17-19,ping_pong"; all of them for "". Raises ArgumentError for one that does not exist."""
    if not text.strip():
        return RUNGS
    found: list[Rung] = []
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        if dash and first.isdigit() and last.isdigit():
            begin, end = find(first).number, find(last).number
            if end < begin:
                raise ArgumentError("the range of rungs ends before it starts", expected="8-12", got=word.strip())
            found += [rung for rung in RUNGS if begin <= rung.number <= end]
        else:
            found.append(find(word.strip()))
    return tuple(dict.fromkeys(found))


def runnable(rungs: Sequence[Rung], arch: str, gpu: str, asked: bool) -> tuple[tuple[Rung, ...], tuple[Rung, ...]]:
    """(rungs that a GPU can run, rungs it cannot). asked: True if exactly these rungs were requested.

    Raises ArgumentError, naming the ones it can run, if a requested rung is not among them, or if there are none.
    """
    device = arches.get(arch)
    able = tuple(rung for rung in rungs if device.supports(rung.arch))
    unable = tuple(rung for rung in rungs if rung not in able)
    if unable and (asked or not able):
        needs = sorted({rung.arch for rung in unable})
        raise ArgumentError(
            f"{gpu} ({arch}) cannot run rung{'s' if len(unable) > 1 else ''} "
            f"{', '.join(f'{rung.number} {rung.name}' for rung in unable)}",
            expected=f"a GPU of {' or '.join(needs)}",
            got=arch,
            hint=f"{other_rungs(arch)}; `warploom ladder --emulate` shows the counters of all",
        )
    return able, unable


def with_gains(rows: Sequence[Mapping[str, Any]], value: str) -> list[dict[str, Any]]:
    """The rows, each with `gain`: the factor over the previous row. value: the compared column; larger is better."""
    found: list[dict[str, Any]] = []
    below: float | None = None
    for row in rows:
        figure = row.get(value)
        mine = figure["median"] if isinstance(figure, Mapping) else figure
        found.append({**row, **({"gain": round(mine / below, 4)} if mine and below else {})})
        below = mine or below
    return found


def facts_of(rung: Rung) -> dict[str, Any]:
    """The entries of a row about its rung that need no run."""
    found: dict[str, Any] = {"rung": rung.number, "kernel": rung.module, "idea": rung.idea, "provider": "warploom"}
    if rung.seed is not None:
        found["seed"] = {"tflops": rung.seed.tflops, "size": rung.seed.size, "gpu": rung.seed.gpu}
    return found


# -- on a GPU ------------------------------------------------------------------------------------------------------


def on_gpu(rungs: Sequence[Rung], size: int, seconds: float, data: str = "normal") -> Iterator[list[dict[str, Any]]]:
    """The rows of each rung as they finish: ours, then cuBLAS in the same run; one with `failed` if it broke."""
    for rung in rungs:
        arguments = [str(rung.number), str(size), str(seconds), data]
        command = [sys.executable, "-m", __package__ + ".rung_on_gpu", *arguments]
        yield guarded(rung, command, TIMEOUT_S + 8 * seconds)


def guarded(rung: Rung, command: Sequence[str], timeout_s: float) -> list[dict[str, Any]]:
    """The last line that a process prints, as JSON; a row with `failed` if it hangs, fails or prints none."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        return [{**facts_of(rung), "failed": f"no answer for {timeout_s:.0f} s: it hangs"}]
    lines = done.stdout.splitlines()
    if done.returncode == 0 and lines:
        try:
            return json.loads(lines[-1])
        except json.JSONDecodeError:
            pass
    words = (done.stderr.strip() or done.stdout.strip()).splitlines()
    reason = words[-1] if words else "it printed nothing"
    return [{**facts_of(rung), "failed": f"exit code {done.returncode}: {reason[:300]}"}]


# -- in the emulator -----------------------------------------------------------------------------------------------


def emulated(rungs: Sequence[Rung], size: int | None = None) -> Iterator[list[dict[str, Any]]]:
    """A row of counters for each rung. size: of M, N and K; None: see `FP32_SIZE` and `TENSOR_SHAPE`."""
    for rung in rungs:
        yield [emulate(rung, *shape_of(rung, size))]


def emulate(rung: Rung, m: int, n: int, k: int) -> dict[str, Any]:
    """Counters of a rung at a size, per 1000 multiply-adds where they grow with it."""
    from ..runtime.machine import H200

    for value, multiple, name in zip((m, n, k), rung.multiples, "MNK", strict=True):
        if value % multiple:
            raise ArgumentError(f"rung {rung.number} takes {name} in multiples of {multiple}",
                                expected=f"a multiple of {multiple}", got=value)  # fmt: skip
    a, b = operands(rung, m, n, k)
    report = rung.build().emulate(a, b, check=True, machine=H200(sms=4))
    return {**facts_of(rung), **counted(rung, (m, n, k), report.counters.as_dict()), "m": m, "n": n, "k": k,
            "relative_error": relative_error(rung, a, b, report.outputs[0]), "protocol": "emulated",
            "predicted": predicted(rung, m, n, k),
            **found(report.findings)}  # fmt: skip


def predicted(rung: Rung, m: int, n: int, k: int) -> dict[str, Any]:
    """The model's prediction for a rung on an H200: microseconds, MHz, watts, its bound."""
    import numpy as np

    shapes = (m, k), (n, k) if rung.layout == "TN" else (k, n)
    found = rung.build().predict(*(np.zeros(shape, rung.dtype.numpy) for shape in shapes)).as_dict()
    return {name: found[name] for name in ("us", "tflops", "clock_mhz", "watts", "bound")}


def beside(rows: Sequence[Mapping[str, Any]], rungs: Sequence[Rung]) -> Iterator[dict[str, Any]]:
    """Predictions for the rungs that an evidence file of `ladder` measured alone, at its sizes."""
    for rung in rungs:
        for row in rows:
            if row.get("rung") == rung.number and row.get("protocol") == "alone" and row["provider"] == "warploom":
                found = predicted(rung, row["m"], row["n"], row["k"])
                measured = row["us"]["median"]
                yield {
                    **facts_of(rung), "m": row["m"], "n": row["n"], "k": row["k"], "predicted": found,
                    "measured_us": measured, "error": round(found["us"] / measured - 1, 4),
                }  # fmt: skip


def operands(rung: Rung, m: int, n: int, k: int) -> tuple[Any, Any]:
    """A (m, k), and B as the rung takes it, random normal."""
    import numpy as np

    draw = np.random.default_rng(0)
    b_shape = (n, k) if rung.layout == "TN" else (k, n)
    a, b = (draw.standard_normal(shape, np.float32).astype(rung.dtype.numpy) for shape in ((m, k), b_shape))
    return a, b


def relative_error(rung: Rung, a: Any, b: Any, c: Any) -> float:
    """Relative error of C against the product in double precision."""
    import numpy as np

    wide = a.astype(np.float64) @ (b.T if rung.layout == "TN" else b).astype(np.float64)
    return float(np.linalg.norm(c.astype(np.float64) - wide) / np.linalg.norm(wide))


def found(findings: Sequence[Finding]) -> dict[str, Any]:
    """The number of findings of each severity, and their rules."""
    counts = {each: sum(one.severity == each for one in findings) for each in ("error", "warning", "performance")}
    return {"findings": len(findings), "by_severity": counts, "rules": sorted({one.rule for one in findings})}


def shape_of(rung: Rung, size: int | None = None) -> tuple[int, int, int]:
    """M, N and K with which a rung is emulated: `size` for each, or a small shape of whole tiles."""
    return (size,) * 3 if size else (FP32_SIZE,) * 3 if rung.dtype.name == "f32" else TENSOR_SHAPE


def example(rung: Rung) -> Iterator[tuple[Any, tuple[Any, Any], Callable[[Any], None]]]:
    """(kernel, arguments, check) of a rung, for `warploom check` of its module."""
    a, b = operands(rung, *shape_of(rung))

    def check(c: Any) -> None:
        error = relative_error(rung, a, b, c)
        assert error < 1e-2, f"relative error {error:.1e}"

    yield rung.build(), (a, b), check


def counted(rung: Rung, shape: tuple[int, int, int], counters: Mapping[str, Any]) -> dict[str, Any]:
    """The counters that matter to a learner.

    global_bytes     bytes to and from L2: sectors of 32 bytes of the threads' accesses, and what copies fetch
    shared_bytes     bytes in and out of shared memory: by threads, by copies, and read by the tensor core
    per_kfma         both for 1000 multiply-adds of the product
    barriers         waits and arrivals for each k-tile of each output tile; None if a rung has no tiles
    """
    m, n, k = shape
    c = {name: int(value) for name, value in counters.items()}
    sectors = 32 * c["global_sectors"]
    moved = c["tma_fetch_bytes"] + c["cp_async_bytes"] + c["tma_store_bytes"]
    shared = c["shared_load_bytes"] + c["shared_store_bytes"] + c["tma_load_bytes"] + c["cp_async_bytes"]
    shared += c["tma_store_bytes"] + operand_bytes(sum(c.get(unit, 0) for unit in ASYNC_UNITS), c["tensor_flops"])
    config = rung.load().Config()
    tiles = [getattr(config, name, 0) for name in ("tile_m", "tile_n")]
    tiles.append(getattr(config, "tile_k", TILE_K_BYTES // rung.dtype.bytes))
    barriers = None
    if all(tiles):
        k_tiles = 1
        for extent, tile in zip(shape, tiles, strict=True):
            k_tiles *= -(-extent // tile)
        barriers = round((c["barrier_waits"] + c["mbarrier_waits"] + c["mbarrier_arrivals"]) / k_tiles, 2)
    thousand = m * n * k / 1000
    unit = max(MATRIX_UNITS, key=lambda unit: c.get(unit, 0)) if c["tensor_flops"] else ""
    return {
        "global_bytes": sectors + moved,
        "global_per_kfma": round((sectors + moved) / thousand, 3),
        "shared_bytes": shared,
        "shared_per_kfma": round(shared / thousand, 3),
        "bank_conflicts": c["bank_conflicts"],
        "barriers_per_k_tile": barriers,
        "tensor_instructions": c.get(unit, 0),
        "tensor_instruction": unit,
        "instructions": c["instructions"],
        "instructions_per_kfma": round(c["instructions"] / thousand, 4),
        "counters": c,
    }


def operand_bytes(count: int, flops: int) -> int:
    """Bytes of A and B that `count` warpgroup MMAs read from shared memory: 64 rows of A and n of B, 32 bytes each.

    Their total n follows from their work: one MMA does 2 · 64 · n · k, k = 16 for 16-bit types (PTX ISA 9.7.15).
    """
    return (64 * count + flops // (2 * 64 * 16)) * 32 if count else 0
