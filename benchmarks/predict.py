"""Predict kernels that were measured, and say how far off the predictions are.

    python benchmarks/predict.py [--sets SET …] [--only PART …] [--recordings FOLDER] [--most N]
                                 [--out benchmarks/results/emulator/predicted.json]
    python benchmarks/predict.py --append --take OTHER.json …

A row a point: `predicted_us` beside `measured_us`, the kernel, the shape, what it is bound by. The measured times come
from `benchmarks/results`; nothing is fitted to them. Sets are scored apart, each against a trivial rule: one rate for
all large products of a type, bytes over the bandwidth plus a start for few rows. `skill` is 1 - error / its error.
Recording is most of the work, and does not depend on the model: --recordings keeps them. The second form predicts
nothing: it takes the rows that runs side by side wrote into files of their own.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import pickle
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import prediction_checks as checks

from warploom.isa.dtypes import ALL
from warploom.kernels.ladder import find
from warploom.lab import evidence
from warploom.lab.recipe import rebuild
from warploom.runtime.on_clock import record
from warploom.timing import H200, Launch, Prediction, predict, predict_turns
from warploom.timing.recording import Recording

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks/results/nvidia-h200"
OUT = ROOT / "benchmarks/results/emulator/predicted.json"
TRIVIAL_TFLOPS = {"bf16": 680.0, "f16": 680.0, "e4m3": 1330.0, "f32": 40.0}
TRIVIAL_TBYTES, TRIVIAL_START_US = 4.71, 2.2
FREE_TILE = re.compile(r"[us]\d+x\d")
Recorded = tuple[Recording, Launch]
FEW_ROWS = 512
"""Up to this many, the trivial rule counts bytes."""


@dataclass(frozen=True)
class Point:
    """A kernel on a shape that was measured.

    Attributes:
        part: the set it belongs to; kernel, shape, dtype: names for people.
        measured_us, measured_mhz: the latter 0 where the kernel did not count its clock.
        record: makes the recording, or those of several launches one after the other.
        protocol: of the measurement; zeros: its data; flops: where they are not 2 m n k; cap_watts: of its protocol.
        turns: a name that kernels share which were measured in turns, and so at one clock.
    """

    part: str
    kernel: str
    shape: tuple[int, int, int]
    dtype: str
    measured_us: float
    record: Callable[[], Recorded | list[Recorded]] = field(repr=False)
    measured_mhz: float = 0.0
    protocol: str = "alone"
    zeros: bool = False
    sha: str = ""
    flops: float = 0.0
    cap_watts: float = 0.0
    turns: str = ""

    def trivial_us(self) -> float:
        if self.flops:
            return self.flops / TRIVIAL_TFLOPS[self.dtype] / 1e6
        m, n, k = self.shape
        if min(m, n) > FEW_ROWS:
            return 2 * m * n * k / TRIVIAL_TFLOPS[self.dtype] / 1e6
        size = ALL[self.dtype].bytes
        return (size * (m * k + n * k) + 2 * m * n) / TRIVIAL_TBYTES / 1e6 + TRIVIAL_START_US


def rows_of(name: str) -> list[dict[str, Any]]:
    return list(json.loads((RESULTS / f"{name}.json").read_text())["rows"])


def zeros_for(kernel: Any, sizes: dict[str, int]) -> list[np.ndarray]:
    """The kernel's inputs, of zeros; a size that nobody names is 1."""
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


def ladder(name: str, part: str, zeros: bool = False) -> Iterator[Point]:
    """Rungs, under the protocol alone."""
    for row in rows_of(name):
        if row.get("provider") == "cublas" or row["protocol"] != "alone":
            continue
        m, n, k = row["m"], row["n"], row["k"]

        def recorded(row: dict[str, Any] = row, m: int = m, n: int = n, k: int = k) -> tuple[Recording, Launch]:
            rung = find(row["rung"])
            b = (n, k) if rung.layout == "TN" else (k, n)
            arrays = [np.zeros(shape, rung.dtype.numpy) for shape in ((m, k), b)]
            return record(rung.build(), *arrays, registers=row["registers"])

        yield Point(part, row["kernel"], (m, n, k), row["dtype"], row["us"]["median"], recorded,
                    row.get("kernel_clock_mhz", 0.0), zeros=zeros, sha=row["ptx_sha256"])  # fmt: skip


def spread(rows: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """So many of them, from first to last; 0: all."""
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

        def recorded(row: dict[str, Any] = row, m: int = m, n: int = n, k: int = k) -> tuple[Recording, Launch]:
            kernel = rebuild(row["build"])
            sizes = {"M": m, "N": n, "K": k, "Blocks": -(-k // 128), "ColumnBlocks": -(-n // 128)}
            if isinstance(row.get("rows"), list):
                groups = len(row["rows"])
                sizes |= {"Rows": m, "AllN": n * groups, "Groups": groups}
            arrays = zeros_for(kernel, sizes)
            if isinstance(row.get("rows"), list):
                arrays[2][:] = np.cumsum(row["rows"])
            return record(kernel, *arrays, out=outputs_for(kernel, sizes), registers=row["registers"])

        yield Point(part, f"{row['kernel']} {row.get('config', '')}".strip(), (m, n, k), row["dtype"],
                    row["us"]["median"], recorded, row.get("kernel_clock_mhz", 0.0), protocol,
                    sha=row.get("ptx_sha256", ""),
                    cap_watts=H200["burst_watts"] if protocol == "burst" else 0.0)  # fmt: skip


def texts() -> Iterator[Point]:
    """The hand-written texts."""
    import reference_texts as duels

    for row in rows_of("reference-texts"):
        if row["provider"] != "reference" or row["protocol"] != "alone":
            continue
        m, n, k = row["m"], row["n"], row["k"]

        def recorded(row: dict[str, Any] = row, m: int = m, n: int = n, k: int = k) -> tuple[Recording, Launch]:
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

        def recorded(row: dict[str, Any] = row, case: ForwardProblem = case) -> tuple[Recording, Launch]:
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
    """The gradients of attention: a sum for each row, dQ, and dK with dV, three launches one after the other.

    Where blocks see different numbers of keys, all of a head's are recorded, which takes too long for the suite's.
    """
    from warploom.kernels.hopper import attention_backward_keys, attention_backward_queries
    from warploom.kernels.hopper.attention_backward import build_rows
    from warploom.lab.attention_contenders import subject
    from warploom.lab.attention_problem import ForwardProblem

    for row in rows_of("attention-backward"):
        case = ForwardProblem(row["head_dim"], row["length"], row["causal"], row["dtype"])
        if row["provider"] != "warploom":
            continue

        def recorded(case: ForwardProblem = case) -> list[Recorded]:
            (b, h, n, _), of = case.sizes, subject(case)
            if case.causal and n > LONGEST_CAUSAL:
                raise ValueError(f"blocks of {n} keys differ: to record all of a head takes too long")
            sizes = {"B": b, "S": n, "T": n, "H": h, "G": h, "P": n, "N": 1}
            found = [build_rows(of.dtype, of.value_dim, True), attention_backward_queries.build(of),
                     attention_backward_keys.build(of)]  # fmt: skip
            numbers = {"scale": 1.0, "factor": 1.0} | ({"last": 0} if case.causal else {})
            made = []
            for kernel in found:
                scalars = {parameter.source for parameter in kernel.program().scalars}
                wanted = {name: number for name, number in numbers.items() if name in scalars}
                blocks = kernel.grid({**sizes}, H200)[0] if case.causal and wanted else 1
                made.append(record(kernel, *zeros_for(kernel, sizes), out=outputs_for(kernel, sizes),
                                   clusters=blocks, **wanted))  # fmt: skip
            return made

        queries = case.sizes[0] * case.sizes[1] * case.sizes[2]
        yield Point("attention backward", row["case"], (queries, case.length, case.head_dim), row["dtype"],
                    row["us"]["median"], recorded, sha=row["ptx_sha256"], flops=2.5 * case.flops)  # fmt: skip


LONGEST_CAUSAL = 2048


def sampled(most: int) -> Iterator[Point]:
    """Shapes drawn at random, which no constant has seen."""
    for name in ("sample-bf16", "sample-bf16-seed-101"):
        yield from built(name, "sampled", "interleaved", most=most)


def within(shapes: int = 6, most: int = 7) -> Iterator[Point]:
    """Configurations of free tiles on the same shape."""
    from warploom.kernels.hopper.free_tile import build
    from warploom.kernels.hopper.free_tile_config import named

    rows = rows_of("sweep-free-tile")
    for at in range(shapes):
        row = rows[at * len(rows) // shapes]
        m, n, k = row["m"], row["n"], row["k"]
        for config in [name for name in sorted(row["us"]) if FREE_TILE.match(name)][:most]:

            def recorded(config: str = config, m: int = m, n: int = n, k: int = k) -> tuple[Recording, Launch]:
                kernel, sizes = build(config=named(config)), {"M": m, "N": n, "K": k}
                return record(kernel, *zeros_for(kernel, sizes), out=outputs_for(kernel, sizes))

            yield Point("within a shape", config, (m, n, k), row["dtype"], row["us"][config], recorded,
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
        "within a shape": within,
    }


# -- predictions -----------------------------------------------------------------------------------------------------


def recorded(point: Point, folder: Path | None) -> list[Recorded]:
    """The recordings of a point's launches, from the folder if they are there."""
    if folder is None:
        return several(point.record())
    name = hashlib.sha256(repr((point.kernel, point.shape, point.sha, point.dtype)).encode()).hexdigest()[:24]
    path = folder / f"{name}.pickle"
    if path.exists():
        return several(pickle.loads(path.read_bytes()))
    made = point.record()
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(made))
    return several(made)


def several(made: Recorded | list[Recorded]) -> list[Recorded]:
    return made if isinstance(made, list) else [made]


def predicted(launches: list[Recorded], point: Point) -> Prediction:
    """The prediction of a point; of several launches the sum of their times, and what is said about the longest."""
    found = [
        predict(recording, H200, replace(launch, zeros=point.zeros, cap_watts=point.cap_watts))
        for recording, launch in launches
    ]
    longest = max(found, key=lambda one: one.us)
    return replace(longest, us=sum(one.us for one in found), clocks=sum(one.clocks for one in found))


def in_turns(made: Iterator[Point]) -> Iterator[list[Point]]:
    """Points one by one, but those that were measured in turns together."""
    for _, mine in itertools.groupby(enumerate(made), lambda one: one[1].turns or one[0]):
        yield [point for _, point in mine]


def predictions(group: Sequence[Point], folder: Path | None) -> list[Prediction]:
    """Of one point, or of several that share a clock."""
    if len(group) == 1:
        return [predicted(recorded(group[0], folder), group[0])]
    return predict_turns([recorded(point, folder)[0] for point in group], H200)


def row_of(point: Point, prediction: Prediction, seconds: float) -> dict[str, Any]:
    m, n, k = point.shape
    row = {
        "set": point.part, "kernel": point.kernel, "m": m, "n": n, "k": k, "dtype": point.dtype,
        "protocol": point.protocol, "measured_us": point.measured_us, "predicted_us": round(prediction.us, 2),
        "error": round(prediction.us / point.measured_us - 1, 4),
        "trivial_us": round(point.trivial_us(), 2), "bound": prediction.bound,
        "predicted_mhz": round(prediction.clock_mhz, 1), "predicted_watts": round(prediction.watts, 1),
        "seconds": round(seconds, 1),
    }  # fmt: skip
    if point.measured_mhz:
        row["measured_mhz"] = point.measured_mhz
        row["clock_error"] = round(prediction.clock_mhz / point.measured_mhz - 1, 4)
        row["clocks_error"] = round(prediction.clocks / (point.measured_us * point.measured_mhz) - 1, 4)
    return row


def score(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of one set: mean and worst error, the trivial rule's, the skill; clocks and clock apart."""
    errors = [abs(row["error"]) for row in rows]
    trivial = [abs(row["trivial_us"] / row["measured_us"] - 1) for row in rows]
    found = {
        "points": len(rows), "mean": round(statistics.mean(errors), 4), "worst": round(max(errors), 4),
        "trivial_mean": round(statistics.mean(trivial), 4),
        "skill": round(1 - statistics.mean(errors) / statistics.mean(trivial), 3),
    }  # fmt: skip
    for name in ("clock_error", "clocks_error"):
        told = [abs(row[name]) for row in rows if name in row]
        if told:
            found[f"{name}_mean"] = round(statistics.mean(told), 4)
    return found


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Which point a row is about."""
    return tuple(row[name] for name in ("set", "kernel", "m", "n", "k", "dtype", "protocol"))


def chosen(kernel: str, parts: Sequence[str]) -> bool:
    return not parts or any(part in kernel for part in parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=[], help="names; all by default")
    parser.add_argument("--only", nargs="*", default=[], help="parts of kernels' names; all by default")
    parser.add_argument("--recordings", type=Path, help="a folder that keeps what was recorded")
    parser.add_argument("--append", action="store_true", help="keep the rows that --out has of other sets")
    parser.add_argument("--take", nargs="*", type=Path, default=[], help="files of other runs, for their rows")
    parser.add_argument("--folds", action="store_true", help="fit on odd rungs and score on even ones, then swap")
    parser.add_argument("--most", type=int, default=12, help="points of a long set")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    skipped: list[dict[str, str]] = []
    wanted = options.sets or ([] if options.take else list(points(options.most)))
    if options.append and options.out.exists():
        before = evidence.read(options.out)
        rows = [row for row in before["rows"] if not (row["set"] in wanted and chosen(row["kernel"], options.only))]
        skipped = [one for one in before["skipped"] if one["set"] not in wanted]
    for other in map(evidence.read, options.take):
        taken = {place(row) for row in other["rows"]}
        rows = [row for row in rows if place(row) not in taken] + other["rows"]
    for name, made in points(options.most).items():
        if name not in wanted:
            continue
        wanted_points = (point for point in made() if chosen(point.kernel, options.only))
        for group in in_turns(wanted_points):
            started = time.perf_counter()
            try:
                found = predictions(group, options.recordings)
            except Exception as error:  # what cannot be predicted is named, and costs no other
                reason = f"{type(error).__name__}: {error}"[:200]
                skipped += [{"set": name, "kernel": point.kernel, "reason": reason} for point in group]
                print("skipped", skipped[-1], flush=True)
                continue
            seconds = (time.perf_counter() - started) / len(group)
            for point, prediction in zip(group, found, strict=True):
                rows.append(row_of(point, prediction, seconds))
                shown = {key: rows[-1][key] for key in ("measured_us", "predicted_us", "error", "bound", "seconds")}
                print(name, point.kernel, point.shape, shown, rows[-1].get("clock_error", ""), flush=True)
        mine = [row for row in rows if row["set"] == name]
        if mine:
            print(name, score(mine), flush=True)
    order = list(points(options.most))  # of sets, and of a ladder's rungs, whichever were predicted again
    rows.sort(key=lambda row: (order.index(row["set"]), row["kernel"] if row["kernel"][:1] == "r" else ""))
    head = evidence.header("predicted", gpu="emulator")
    sets = dict.fromkeys(row["set"] for row in rows)
    inside = [row for row in rows if row["set"] == "within a shape"]
    rungs = [row for row in rows if row["set"] == "ladder 8192"]
    head |= {"steps": checks.steps(rungs), "within_a_shape": checks.orders(inside)}
    if options.folds:
        head["halves"] = checks.halves({
            int(one.kernel[1:3]): (one.measured_us, *recorded(one, options.recordings)[0])
            for one in ladder("ladder-4096", "")
        })  # fmt: skip
    elif options.append and options.out.exists():
        head["halves"] = before.get("halves", {})
    head |= {"scores": {name: score([row for row in rows if row["set"] == name]) for name in sets}, "skipped": skipped}
    evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
