"""Predict kernels that were measured, and compute the errors of the predictions.

    python benchmarks/predict.py [--sets SET …] [--only PART …] [--recordings FOLDER] [--most N]
                                 [--workers N] [--out benchmarks/results/emulator/predicted.json]
    python benchmarks/predict.py --append --take OTHER.json …

One row per point: `predicted_us`, `measured_us`, the kernel, the shape, and the bound. Measured times come from
`benchmarks/results`; nothing is fitted to them. Sets are scored separately, each against a trivial rule: one rate for
all large products of a type, or bytes over the bandwidth plus a launch time for few rows. `skill` is 1 - error / its
error. A row whose kernel has another text now than when it was measured has `text`. Recording is most of the work and
does not depend on the model: --recordings keeps the recordings, by their texts. The second form predicts nothing: it
merges the rows that parallel runs wrote into files of their own.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import prediction_checks as checks
from predict_sets import Point, Recorded, ladder, points
from recordings import Recordings
from status import equivalent

from warploom.lab import evidence
from warploom.timing import H200, Prediction, predict, predict_turns

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks/results/emulator/predicted.json"


# -- predictions -----------------------------------------------------------------------------------------------------


def recorded(point: Point, kept: Recordings) -> list[Recorded]:
    """The recordings of a point's launches."""
    return several(point.record(kept.record))


def several(made: Recorded | list[Recorded]) -> list[Recorded]:
    return made if isinstance(made, list) else [made]


def predicted(launches: list[Recorded], point: Point) -> Prediction:
    """The prediction of a point; for several launches, the sum of their times and the details of the longest."""
    found = [
        predict(recording, point.hardware, replace(launch, zeros=point.zeros, cap_watts=point.cap_watts))
        for recording, launch in launches
    ]
    longest = max(found, key=lambda one: one.us)
    return replace(longest, us=sum(one.us for one in found), clocks=sum(one.clocks for one in found))


def in_turns(made: Iterator[Point]) -> Iterator[list[Point]]:
    """The points one by one, except that points measured in alternation are grouped."""
    for _, mine in itertools.groupby(enumerate(made), lambda one: one[1].turns or one[0]):
        yield [point for _, point in mine]


def predictions(group: Sequence[Point], kept: Recordings) -> tuple[list[Prediction], list[bool]]:
    """Predictions of one point, or of several that share a clock, and whether each is of the text that was measured."""
    made, same = [], []
    for point in group:
        kept.texts.clear()
        made.append(recorded(point, kept))
        same.append(not point.sha or measured_text(point.sha, kept.texts[-1]))
    if len(group) == 1:
        return [predicted(made[0], group[0])], same
    return predict_turns([launches[0] for launches in made], H200), same


def measured_text(measured: str, now: str) -> bool:
    """True if a text is the one that was measured, or has its machine code."""
    return measured == now or (measured, now) in equivalent()


def row_of(point: Point, prediction: Prediction, same: bool, seconds: float) -> dict[str, Any]:
    m, n, k = point.shape
    row = {
        "set": point.part, "kernel": point.kernel, "m": m, "n": n, "k": k, "dtype": point.dtype,
        "protocol": point.protocol, "measured_us": point.measured_us, "predicted_us": round(prediction.us, 2),
        "error": round(prediction.us / point.measured_us - 1, 4),
        "trivial_us": round(point.trivial_us(), 2), "bound": prediction.bound,
        "predicted_mhz": round(prediction.clock_mhz, 1), "predicted_watts": round(prediction.watts, 1),
        "seconds": round(seconds, 1),
    }  # fmt: skip
    if not same:
        row["text"] = "changed since it was measured"
    if point.measured_mhz:
        row["measured_mhz"] = point.measured_mhz
        row["clock_error"] = round(prediction.clock_mhz / point.measured_mhz - 1, 4)
        row["clocks_error"] = round(prediction.clocks / point.clocks - 1, 4)
    return row


def score(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Scores of one set: mean and worst error, the trivial rule's error, the skill; clocks and clock separately.

    Kernels bound by L2 have a mean clock of their own: their time hardly depends on it, so little power decides it.
    """
    errors = [abs(row["error"]) for row in rows]
    trivial = [abs(row["trivial_us"] / row["measured_us"] - 1) for row in rows]
    found = {
        "points": len(rows), "mean": round(statistics.mean(errors), 4), "worst": round(max(errors), 4),
        "trivial_mean": round(statistics.mean(trivial), 4),
        "skill": round(1 - statistics.mean(errors) / statistics.mean(trivial), 3),
    }  # fmt: skip
    apart = [row for row in rows if "L2" in row["bound"]]
    others = [row for row in rows if "L2" not in row["bound"]]
    for name, mine in (("clock_error", others), ("clocks_error", others), ("clock_error", apart)):
        told = [abs(row[name]) for row in mine if name in row]
        if told:
            found[f"{name}{'_of_l2' * (mine is apart)}_mean"] = round(statistics.mean(told), 4)
    return found


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """The point that a row belongs to."""
    return tuple(row[name] for name in ("set", "kernel", "m", "n", "k", "dtype", "protocol"))


def answer(group: Sequence[Point], recordings: Path | None) -> tuple[list[dict[str, Any]], str]:
    """The rows of a group; or none, and why it cannot be predicted, which costs no other."""
    started = time.perf_counter()
    try:
        found, same = predictions(group, Recordings(recordings))
    except Exception as error:
        return [], f"{type(error).__name__}: {error}"[:200]
    seconds = (time.perf_counter() - started) / len(group)
    return [row_of(*one, seconds) for one in zip(group, found, same, strict=True)], ""


def answers(
    name: str, groups: Sequence[Sequence[Point]], options: argparse.Namespace
) -> Iterator[tuple[list[dict[str, Any]], str]]:
    """The answer of each group of a set, by as many processes as are allowed."""
    if options.workers == 1:
        yield from (answer(group, options.recordings) for group in groups)
        return
    with ProcessPoolExecutor(options.workers, mp_context=multiprocessing.get_context("fork")) as pool:
        # a point holds functions, which cannot be sent, so a process finds its own
        yield from pool.map(partial(answer_of, name, options.most, options.recordings, tuple(options.only)),
                            range(len(groups)))  # fmt: skip


def answer_of(
    name: str, most: int, recordings: Path | None, only: Sequence[str], number: int
) -> tuple[list[dict[str, Any]], str]:
    """The answer of a set's group with this number."""
    return answer(groups_of(name, most, only)[number], recordings)


def groups_of(name: str, most: int, only: Sequence[str]) -> list[list[Point]]:
    """The groups of a set's chosen kernels."""
    return list(in_turns(point for point in points(most)[name]() if chosen(point.kernel, only)))


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
    parser.add_argument("--workers", type=int, default=1, help="processes that predict at a time")
    parser.add_argument("--most", type=int, default=12, help="points of a long set")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    kept = Recordings(options.recordings)
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
    for name in points(options.most):
        if name not in wanted:
            continue
        groups = groups_of(name, options.most, options.only)
        for group, (found, reason) in zip(groups, answers(name, groups, options), strict=True):
            skipped += [{"set": name, "kernel": point.kernel, "reason": reason} for point in group if reason]
            rows += found
            for row in found:
                shown = {key: row[key] for key in ("measured_us", "predicted_us", "error", "bound", "seconds")}
                shape = row["m"], row["n"], row["k"]
                print(name, row["kernel"], shape, shown, row.get("clock_error", ""), flush=True)
            if reason:
                print("skipped", skipped[-1], flush=True)
        mine = [row for row in rows if row["set"] == name]
        if mine:
            print(name, score(mine), flush=True)
    order = list(points(options.most))  # of sets, and of a ladder's rungs, whichever were predicted again
    rows.sort(key=lambda row: (order.index(row["set"]), row["kernel"] if row["kernel"][:1] == "r" else ""))
    head = evidence.header("predicted", gpu="emulator")
    sets = dict.fromkeys(row["set"] for row in rows)
    inside, others = ([row for row in rows if row["set"] == name] for name in ("within a shape", "other shapes"))
    rungs = [row for row in rows if row["set"] == "ladder 8192"]
    head |= {"steps": checks.steps(rungs), "within_a_shape": checks.orders(inside),
             "other_shapes": checks.orders(others)}  # fmt: skip
    if options.folds:
        head["halves"] = checks.halves({
            int(one.kernel[1:3]): (one.measured_us, *recorded(one, kept)[0])
            for one in ladder("ladder-4096", "")
        })  # fmt: skip
    elif options.append and options.out.exists():
        head["halves"] = before.get("halves", {})
    head |= {"scores": {name: score([row for row in rows if row["set"] == name]) for name in sets}, "skipped": skipped}
    evidence.write(options.out, head, rows)


if __name__ == "__main__":
    main()
