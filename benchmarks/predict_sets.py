"""The sets of measured kernels, each with what `predict.py` needs to predict it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from warploom.errors import ArgumentError
from warploom.isa.dtypes import ALL
from warploom.kernels.hopper.free_tile_config import FreeTileConfig
from warploom.kernels.ladder import find
from warploom.lab.recipe import rebuild
from warploom.timing import H100, H200, Hardware, Launch
from warploom.timing.recording import Recording

RESULTS = Path(__file__).resolve().parents[1] / "benchmarks/results"
TRIVIAL_TFLOPS = {"bf16": 680.0, "f16": 680.0, "e4m3": 1330.0, "f32": 40.0}
TRIVIAL_TBYTES, TRIVIAL_START_US = 4.71, 2.2
FREE_TILE = re.compile(r"[us]\d+x\d")
T = TypeVar("T")
Recorded = tuple[Recording, Launch]
Record = Callable[..., Recorded]
FEW_ROWS = 512
"""The trivial rule counts bytes up to this many rows."""


@dataclass(frozen=True)
class Point:
    """A kernel on a shape that was measured.

    Attributes:
        part: the set it belongs to; kernel, shape, dtype: labels.
        measured_us, measured_mhz: the latter is 0 if the kernel did not count its clock.
        clocks: measured, of the launches whose clock was counted if those were timed again; else of `measured_us`.
        record: makes the recording, or the recordings of consecutive launches, by a function like `on_clock.record`.
        protocol, zeros: of the measurement; flops: if not 2 m n k; cap_watts: the power limit of the protocol.
        turns: a name shared by kernels that were measured in alternation, and so at one clock.
        hardware: the GPU that was measured.
    """

    part: str
    kernel: str
    shape: tuple[int, int, int]
    dtype: str
    measured_us: float
    record: Callable[[Record], Recorded | list[Recorded]] = field(repr=False)
    measured_mhz: float = 0.0
    protocol: str = "alone"
    zeros: bool = False
    sha: str = ""
    flops: float = 0.0
    cap_watts: float = 0.0
    turns: str = ""
    hardware: Hardware = H200
    clocks: float = 0.0

    def trivial_us(self) -> float:
        if self.flops:
            return self.flops / TRIVIAL_TFLOPS[self.dtype] / 1e6
        m, n, k = self.shape
        if min(m, n) > FEW_ROWS:
            return 2 * m * n * k / TRIVIAL_TFLOPS[self.dtype] / 1e6
        size = ALL[self.dtype].bytes
        return (size * (m * k + n * k) + 2 * m * n) / TRIVIAL_TBYTES / 1e6 + TRIVIAL_START_US


def rows_of(name: str, gpu: str = "nvidia-h200") -> list[dict[str, Any]]:
    return list(json.loads((RESULTS / gpu / f"{name}.json").read_text())["rows"])


def zeros_for(kernel: Any, sizes: dict[str, int]) -> list[np.ndarray]:
    """The kernel's inputs, of zeros; sizes that are not given are 1."""
    specs = list(kernel.in_specs.values()) if isinstance(kernel.in_specs, dict) else list(kernel.in_specs)
    made: list[np.ndarray] = []
    for spec in specs:
        if not hasattr(spec, "shape") or spec.workspace:
            continue
        shape = tuple(sizes.get(one, 1) if isinstance(one, str) else one for one in spec.shape)
        made.append(np.zeros(shape, spec.dtype.numpy))
    return made


def outputs_for(kernel: Any, sizes: dict[str, int]) -> tuple[np.ndarray, ...]:
    specs = list(kernel.out_specs.values()) if isinstance(kernel.out_specs, dict) else list(kernel.out_specs)
    shapes = [tuple(sizes.get(one, 1) if isinstance(one, str) else one for one in spec.shape) for spec in specs]
    return tuple(np.zeros(shape, spec.dtype.numpy) for shape, spec in zip(shapes, specs, strict=True))


# -- sets ----------------------------------------------------------------------------------------------------------


def counted(part: str, row: dict[str, Any]) -> tuple[float, float]:
    """(the clock in MHz, the clocks) of a row: of the launches that counted it again, if it was."""
    for one in rows_of("product-clocks"):
        if one["set"] == part and all(one[name] == row[name] for name in "mnk") and one["kernel"] == label(row):
            return one["kernel_clock_mhz"], one["us"]["median"] * one["kernel_clock_mhz"]
    mhz = row.get("kernel_clock_mhz", 0.0)
    return mhz, row["us"]["median"] * mhz


def label(row: dict[str, Any]) -> str:
    """The name of a row's kernel."""
    return f"{row['kernel']} {row.get('config', '')}".strip()


def ladder(name: str, part: str, zeros: bool = False) -> Iterator[Point]:
    """Rungs, under the protocol alone."""
    for row in rows_of(name):
        if row.get("provider") == "cublas" or row["protocol"] != "alone":
            continue
        m, n, k = row["m"], row["n"], row["k"]

        def recorded(record: Record, row: dict[str, Any] = row, m: int = m, n: int = n, k: int = k) -> Recorded:
            rung = find(row["rung"])
            b = (n, k) if rung.layout == "TN" else (k, n)
            arrays = [np.zeros(shape, rung.dtype.numpy) for shape in ((m, k), b)]
            return record(rung.build(), *arrays, registers=row["registers"])

        mhz, clocks = counted(name, row)
        yield Point(part, row["kernel"], (m, n, k), row["dtype"], row["us"]["median"], recorded, mhz,
                    zeros=zeros, sha=row["ptx_sha256"], clocks=clocks)  # fmt: skip


def spread(rows: list[T], most: int) -> list[T]:
    """`most` of them, evenly from first to last; 0: all."""
    return [rows[at * len(rows) // most] for at in range(most)] if most and len(rows) > most else rows


def built(name: str, part: str, protocol: str, wanted: Callable[[dict[str, Any]], bool] = lambda row: True,
          most: int = 0) -> Iterator[Point]:  # fmt: skip
    """Rows with a recipe."""
    rows = [
        row for row in rows_of(name)
        if row.get("provider", "") == "warploom" and row.get("protocol") == protocol and "build" in row and wanted(row)
    ]  # fmt: skip
    for row in spread(rows, most):
        m, n, k = row["m"], row["n"], row["k"]

        def recorded(record: Record, row: dict[str, Any] = row, m: int = m, n: int = n, k: int = k) -> Recorded:
            kernel = rebuild(row["build"])
            sizes = {"M": m, "N": n, "K": k, "Blocks": -(-k // 128), "ColumnBlocks": -(-n // 128)}
            if isinstance(row.get("rows"), list):
                groups = len(row["rows"])
                sizes |= {"Rows": m, "AllN": n * groups, "Groups": groups}
            arrays = zeros_for(kernel, sizes)
            if isinstance(row.get("rows"), list):
                arrays[2][:] = np.cumsum(row["rows"])
            return record(kernel, *arrays, out=outputs_for(kernel, sizes), registers=row["registers"])

        mhz, clocks = counted(name, row) if protocol == "alone" else (0.0, 0.0)
        yield Point(part, label(row), (m, n, k), row["dtype"], row["us"]["median"], recorded, mhz, protocol,
                    sha=row.get("ptx_sha256", ""), clocks=clocks,
                    cap_watts=H200["burst_watts"] if protocol == "burst" else 0.0)  # fmt: skip


def texts() -> Iterator[Point]:
    """The hand-written texts."""
    import reference_texts as duels

    for row in rows_of("reference-texts"):
        if row["provider"] != "reference" or row["protocol"] != "alone":
            continue
        m, n, k = row["m"], row["n"], row["k"]

        def recorded(record: Record, row: dict[str, Any] = row, m: int = m, n: int = n, k: int = k) -> Recorded:
            import torch

            duel = next(one for one in duels.DUELS if one.text == row["text"])
            contender, problem = duels.Reference(duel.kernel), duel.problem((m, n, k))
            program = contender.program(problem, H200.sms)
            dtype = getattr(torch, "bfloat16" if row["dtype"] == "bf16" else "float8_e4m3fn")
            a, b = (torch.zeros(shape, dtype=torch.bfloat16).to(dtype) for shape in ((m, k), (n, k)))
            blocks = (m, -(-k // 128)), (-(-n // 128), -(-k // 128))
            scales = [torch.ones(shape) for shape in (blocks if problem.scales.startswith("block") else ((1,), (1,)))]
            operands = duels.Operands(a, b, torch.zeros(m, n, dtype=torch.bfloat16), *scales)
            return record(program, *contender.arguments(problem, operands), registers=row.get("registers", 168))

        yield Point("reference texts", row["text"], (m, n, k), row["dtype"], row["us"]["median"], recorded,
                    sha=row.get("text_sha256", ""))  # fmt: skip


def attention(most: int) -> Iterator[Point]:
    """Attention forward, its data normal. The shape is (queries of all heads, keys that one sees at most, head_dim)."""
    from warploom.kernels.hopper.attention_config import section
    from warploom.lab.attention_contenders import subject
    from warploom.lab.attention_problem import ForwardProblem

    rows = [
        row for row in rows_of("attention")
        if row["provider"] == "warploom" and row["protocol"] == "alone" and row["data"] == "normal"
    ]  # fmt: skip
    for row in spread(rows, most):
        words = row["case"].split()
        value_dim = int(words[0].partition("/")[2] or 0)
        group = int(words[words.index("group") + 1]) if "group" in words else 1
        window = (1024, 0) if "window" in words else None
        case = ForwardProblem(
            row["head_dim"], row["length"], row["causal"], row["dtype"], value_dim, group, window=window
        )

        def recorded(record: Record, row: dict[str, Any] = row, case: ForwardProblem = case) -> Recorded:
            kernel = rebuild(row["build"])
            b, h, n, _ = case.sizes
            sizes = {"B": b, "S": n, "T": n, "H": h, "G": h // case.group, "N": 1}
            numbers: dict[str, Any] = {"scale": 1.0, "section": 1}
            if case.causal or case.window:
                of = subject(case)
                numbers |= {"section": section(of, True, n, h, h // case.group), "last": 0}
            if case.window:
                numbers["first"] = -case.window[0]
            return record(
                kernel, *zeros_for(kernel, sizes), out=outputs_for(kernel, sizes), registers=row["registers"], **numbers
            )

        queries = case.sizes[0] * case.sizes[1] * case.sizes[2]
        yield Point("attention", row["case"], (queries, case.length, case.head_dim), row["dtype"],
                    row["us"]["median"], recorded, sha=row["ptx_sha256"], flops=case.flops)  # fmt: skip


def attention_backward() -> Iterator[Point]:
    """The gradients of attention, measured on an H100: a sum for each row, dQ with dK and dV, and dQ in 16 bits.

    Two blocks of keys of a head are recorded: the first stores its sums of dQ, and the others add to them. If blocks
    see different numbers of queries, all of a head's are recorded.
    """
    from warploom.kernels.hopper.attention_backward import build
    from warploom.kernels.hopper.attention_backward_config import backward_config
    from warploom.kernels.hopper.attention_backward_rows import build_rows
    from warploom.kernels.hopper.attention_backward_sums import build_convert
    from warploom.lab.attention_contenders import subject
    from warploom.lab.attention_problem import ForwardProblem

    for row in rows_of("attention-backward", "nvidia-h100"):
        case = ForwardProblem(row["head_dim"], row["length"], row["causal"], row["dtype"])
        if row["provider"] != "warploom":
            continue

        def recorded(record: Record, case: ForwardProblem = case) -> list[Recorded]:
            (b, h, n, _), of = case.sizes, subject(case)
            config = backward_config(of)
            blocks = -(-n // config.tile_n)
            if case.causal and blocks > MOST_BLOCKS:
                raise ValueError(f"{blocks} blocks of keys differ: to record all of a head takes too long")
            padded = config.padded(n)
            sizes = {"B": b, "S": n, "T": n, "H": h, "G": h, "P": padded, "N": 1,
                     "W": config.sum_elements(of, padded), "places": config.turns(b * h, padded)}  # fmt: skip
            numbers = {"scale": 1.0, "factor": 1.0, "last": 0, "section": 1}
            made = []
            for kernel, many in (
                (build_rows(of.dtype, of.value_dim, True, cleared=("turns",)), 1),
                (build(of, config), blocks if case.causal else 2), (build_convert(of, config), 1),
            ):  # fmt: skip
                scalars = {parameter.source for parameter in kernel.program().scalars}
                wanted = {name: number for name, number in numbers.items() if name in scalars}
                made.append(record(kernel, *zeros_for(kernel, sizes), out=outputs_for(kernel, sizes),
                                   clusters=many, **wanted))  # fmt: skip
            return made

        queries = case.sizes[0] * case.sizes[1] * case.sizes[2]
        yield Point("attention backward", row["case"], (queries, case.length, case.head_dim), row["dtype"],
                    row["us"]["median"], recorded, flops=2.5 * case.flops, hardware=H100)  # fmt: skip


MOST_BLOCKS = 32


def sampled(most: int) -> Iterator[Point]:
    """Shapes drawn at random, to which no constant was fitted."""
    for name in ("sample-bf16", "sample-bf16-seed-101"):
        yield from built(name, "sampled", "interleaved", most=most)


@dataclass(frozen=True)
class Shuffled(FreeTileConfig):
    """A free tile as `sweep-free-tile` measured it: the warpgroup's index comes from shfl.sync."""

    @property
    def reduced_index(self) -> bool:
        return False


SHORT_US = 60.0


def within(part: str, other: bool = False, most: int = 7) -> Iterator[Point]:
    """Configurations of free tiles on the same shape.

    other: products below `SHORT_US` by which no mechanism of the model was chosen, with configurations spread over all
    that were measured; else the first ones of six shapes.
    """
    from warploom.kernels.hopper.free_tile import build
    from warploom.kernels.hopper.free_tile_config import named

    def exists(config: str) -> bool:
        """True if the configuration can still be built: some that were measured no longer can."""
        try:
            build(config=Shuffled(**vars(named(config))))
        except ArgumentError:
            return False
        return True

    rows = [row for row in rows_of("sweep-free-tile") if not other or min(row["us"].values()) < SHORT_US]
    many = len(rows)
    shapes = [at * many // 8 + many // 16 for at in (1, 2, 4, 6)] if other else [at * many // 6 for at in range(6)]
    for row in (rows[at] for at in shapes):
        m, n, k = row["m"], row["n"], row["k"]
        found = (name for name in sorted(row["us"]) if FREE_TILE.match(name) and exists(name))
        for config in spread(list(found), most) if other else islice(found, most):

            def recorded(record: Record, config: str = config, m: int = m, n: int = n, k: int = k) -> Recorded:
                tile = Shuffled(**vars(named(config)))
                kernel, sizes = build(config=tile), {"M": m, "N": n, "K": k}
                return record(kernel, *zeros_for(kernel, sizes), out=outputs_for(kernel, sizes))

            yield Point(part, config, (m, n, k), row["dtype"], row["us"][config], recorded,
                        protocol="interleaved", turns=row_name(row))  # fmt: skip


def row_name(row: dict[str, Any]) -> str:
    return f"{row['m']}x{row['n']}x{row['k']} of run {row['run']}"


def points(most: int) -> dict[str, Callable[[], Iterator[Point]]]:
    """The sets by name. most: points of a long one."""
    return {
        "ladder 8192": lambda: ladder("ladder", "ladder 8192"),
        "ladder 4096": lambda: ladder("ladder-4096", "ladder 4096"),
        "zeros": lambda: ladder("ladder-zeros", "zeros", zeros=True),
        "small M": lambda: built("decode", "small M", "interleaved", most=most),
        "few rows": lambda: built("few-rows", "few rows", "interleaved", most=most),
        "fp8": lambda: built("fp8", "fp8", "alone", lambda row: "block" not in row.get("scales", ""), most=most),
        "block scaled": lambda: built("fp8", "block scaled", "alone", lambda row: "block" in row.get("scales", "")),
        "grouped": lambda: built("grouped", "grouped", "interleaved"),
        "square": lambda: built("square-bf16", "square", "alone", most=most),
        "llm": lambda: built("llm-bf16", "llm", "alone", most=most),
        "small K": lambda: built("small-k-bf16", "small K", "alone", most=most),
        "reference texts": texts,
        "attention": lambda: attention(most),
        "attention backward": attention_backward,
        "burst": lambda: built("square-bf16", "burst", "burst"),
        "sampled": lambda: sampled(most),
        "within a shape": lambda: within("within a shape"),
        "other shapes": lambda: within("other shapes", other=True),
    }
