"""Predict kernels of many kinds on a CPU and measure them on a GPU: copies, reductions, softmaxes, transposes, atomics,
pipelines, small products, attention, texts of nvcc and Triton.

    python benchmarks/predict_unseen.py [--only PART …] [--again] [--recordings FOLDER] [--on h100] [--workers N]
                                        [--out benchmarks/results/emulator/unseen.json]
    python benchmarks/predict_unseen.py --measure [--unmeasured] [--seconds S] [--only PART …]

The first form writes `predicted_us` for every kernel that has a measurement or no prediction, without a GPU.
Predictions that wait for a measurement are kept, unless --again is given. The second form, on an H200, writes
`measured_us` into the same rows and keeps the earlier prediction as `blind_us`. It measures with `Kernel.time`:
protocol interleaved, replays of a CUDA graph, random data, and rotating copies of the arrays, so that no launch finds
its own in L2. `unseen-h100.json` has the kernels that an H100 ran; --on h100 predicts them with its constants.

`roof_us` is a lower bound: bytes over DRAM's bandwidth from the microbenchmarks, plus a launch. `trivial_us` is a
trivial rule for comparison: bytes / 4.71 TB/s + 2.2 us (or 400 TFLOP/s for products; on an H100 3.16 TB/s).
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.recordings import Recordings  # noqa: E402
from benchmarks.unseen import Case, cases  # noqa: E402
from warploom.lab import evidence  # noqa: E402
from warploom.lang import Kernel  # noqa: E402
from warploom.runtime.benchmark.timing import MOST_SETS  # noqa: E402
from warploom.timing import H100, H200, Hardware, predict  # noqa: E402
from warploom.timing.occupancy import L2_BYTES  # noqa: E402

OUT = ROOT / "benchmarks/results/emulator"
MODELS = {"h200": (H200, "unseen"), "h100": (H100, "unseen-h100")}
"""The hardware of a prediction, and the name of its file."""
TRIVIAL_TBYTES, TRIVIAL_START_US, TRIVIAL_TFLOPS = 4.71, 2.2, 400.0
LIMIT_S = 60
PLAUSIBLE = (0.25, 60.0)
"""A prediction below this share of the roof, or above this multiple of it, is printed as absurd."""
CLOCKS_MHZ = (100.0, 2_100.0)
"""SM clocks that a Hopper GPU can have; a kernel whose counters were not written reports others."""


def roof_us(case: Case, hardware: Hardware = H200) -> float:
    """The least time: the bytes through DRAM, or a launch, whichever is longer."""
    return max(case.bytes / hardware["dram_bytes_per_ns"] / 1e3, hardware["launch_us"])


def trivial_us(case: Case, hardware: Hardware = H200) -> float:
    tbytes = TRIVIAL_TBYTES * hardware["dram_bytes_per_ns"] / H200["dram_bytes_per_ns"]
    return max(case.bytes / tbytes / 1e6, case.flops / TRIVIAL_TFLOPS / 1e6) + TRIVIAL_START_US


def predicted(case: Case, kept: Recordings, hardware: Hardware = H200) -> dict[str, Any]:
    """The row of a case."""
    started = time.perf_counter()
    subject = case.build()
    inputs = [one.made(zeros=not case.steered) for one in case.inputs]
    outputs = tuple(one.made() for one in case.outputs)
    out = outputs[0] if len(outputs) == 1 else outputs
    warm = sum(one.bytes for one in (*case.inputs, *case.outputs)) * MOST_SETS < L2_BYTES
    recording, launch = kept.record(subject, *inputs, out=out, clusters=case.clusters, warm=warm, **case.scalars)
    recorded = time.perf_counter() - started
    found = predict(recording, hardware, launch)
    return {
        "kernel": case.name, "kind": case.kind, "bytes": case.bytes, "predicted_us": round(found.us, 3),
        "roof_us": round(roof_us(case, hardware), 3), "trivial_us": round(trivial_us(case, hardware), 3),
        "bound": found.bound,
        "roofs": {name: round(share, 3) for name, share in found.roofs.items()},
        "warm": warm, "predicted_mhz": round(found.clock_mhz, 1), "residents": found.residents, "turns": found.turns,
        "l2_bytes": round(found.l2_bytes), "dram_bytes": round(found.dram_bytes), "registers": launch.registers,
        "seconds": round(time.perf_counter() - started, 2), "recording_seconds": round(recorded, 2),
        "steps": sum(len(steps) for steps in recording.steps.values()),
    }  # fmt: skip


def predicted_by_name(recordings: Path | None, hardware: Hardware, name: str) -> dict[str, Any]:
    """The row of a case, which has functions and so cannot be sent to another process."""
    return predicted(next(case for case in cases() if case.name == name), Recordings(recordings), hardware)


def assembled(name: str) -> str:
    """Build one kernel into the cache, in its own process."""
    from warploom.runtime.on_gpu import build

    try:
        build(next(case for case in cases() if case.name == name).build().program())
    except Exception as error:
        return f"{name}: {error}"
    return ""


def measured(case: Case, seconds: float) -> dict[str, Any]:
    """Measure a case on the GPU."""
    import torch

    from warploom import launch as launched
    from warploom.isa import dtypes
    from warploom.runtime.benchmark.timing import time_kernel

    def moved(one: Any) -> Any:
        plain = torch.from_numpy(one.made().view(f"u{one.dtype.bytes}")).cuda()
        return plain.view(getattr(torch, dtypes.torch_name(one.dtype)))

    subject = case.build()
    call = subject if isinstance(subject, Kernel) else partial(launched, subject)
    outputs = tuple(moved(one) for one in case.outputs)
    timing = time_kernel(
        call, subject.program(), [moved(one) for one in case.inputs], out=outputs[0] if len(outputs) == 1 else outputs,
        scalars=case.scalars, protocol="interleaved", seconds=seconds, launch="graph",
    )  # fmt: skip
    spread = timing.seconds[timing.kernel].as_dict(lambda one: one * 1e6)
    return {
        "measured_us": spread["median"], "measured_min_us": spread["min"], "measured_max_us": spread["max"],
        "measured_mhz": timing.clock_mhz, "sets": timing.sets, "protocol": timing.protocol, "launch": timing.launch,
        "l2": "arrays rotated" if timing.sets > 1 else "as the launch before left it", "data": "random",
    }  # fmt: skip


def with_possible_clock(row: dict[str, Any]) -> dict[str, Any]:
    """The row, without a clock that no GPU has."""
    low, high = CLOCKS_MHZ
    known = row.get("measured_mhz")
    return row if known is None or low <= known <= high else {k: v for k, v in row.items() if k != "measured_mhz"}


def with_error(row: dict[str, Any]) -> dict[str, Any]:
    if "measured_us" not in row or "predicted_us" not in row:
        return row
    errors = {"error": row["predicted_us"], "blind_error": row.get("blind_us", row["predicted_us"])}
    return row | {name: round(us / row["measured_us"] - 1, 4) for name, us in errors.items()}


def scores(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Scores of all measured rows, and by kind."""
    done = [row for row in rows if "error" in row]
    kinds = {"all": done} | {
        kind: [row for row in done if row["kind"] == kind] for kind in {row["kind"] for row in done}
    }
    found = {}
    for name, mine in sorted(kinds.items()):
        if mine:
            errors = [abs(row["error"]) for row in mine]
            trivial = [abs(row["trivial_us"] / row["measured_us"] - 1) for row in mine]
            blind = [abs(row["blind_error"]) for row in mine]
            found[name] = {
                "points": len(mine), "mean": round(statistics.mean(errors), 4), "worst": round(max(errors), 4),
                "blind_mean": round(statistics.mean(blind), 4), "blind_worst": round(max(blind), 4),
                "median": round(statistics.median(errors), 4), "trivial_mean": round(statistics.mean(trivial), 4),
                "skill": round(1 - statistics.mean(errors) / max(1e-9, statistics.mean(trivial)), 3),
            }  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--again", action="store_true", help="predict also what waits for its measurement")
    parser.add_argument("--recordings", type=Path, help="a folder that keeps what was recorded")
    parser.add_argument("--measure", action="store_true", help="on the GPU")
    parser.add_argument("--unmeasured", action="store_true", help="only kernels that have no measurement yet")
    parser.add_argument("--seconds", type=float, default=0.25, help="of each kernel on the GPU")
    parser.add_argument("--on", choices=MODELS, default="h200", help="whose constants predict")
    parser.add_argument("--workers", type=int, default=1, help="processes that predict at a time")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    hardware, name = MODELS[options.on]
    options.out = options.out or OUT / f"{name}.json"
    before = json.loads(options.out.read_text()) if options.out.exists() else {"rows": []}
    rows: dict[str, dict[str, Any]] = {row["kernel"]: row for row in before["rows"]}
    known = {case.name: case for case in cases()}
    wanted = [case for case in known.values() if not options.only or any(one in case.name for one in options.only)]
    if options.unmeasured:
        wanted = [case for case in wanted if "measured_us" not in rows.get(case.name, {})]
    head = evidence.header("unseen", gpu="emulator")
    if options.measure:
        head = _measure(wanted, rows, options.seconds, before, partial(_write, options.out, list(known)))
    else:
        head |= {name: before[name] for name in ("measured_on", "skipped") if name in before}
        waiting = {name for name, row in rows.items() if "predicted_us" in row and "measured_us" not in row}
        wanted = [case for case in wanted if case.name not in waiting or options.again]
        for case, row in zip(wanted, _predict(wanted, hardware, options), strict=True):
            row |= {"predicted_at": head["source_sha256"][:12]}
            earlier = {name: value for name, value in rows.get(case.name, {}).items() if name not in row}
            rows[case.name] = with_error(earlier | row)
            shown = {name: row[name] for name in ("predicted_us", "roof_us", "bound", "seconds", "steps")}
            absurd = not PLAUSIBLE[0] <= row["predicted_us"] / row["roof_us"] <= PLAUSIBLE[1]
            print(case.name, shown, rows[case.name].get("error", ""), "ABSURD?" if absurd else "", flush=True)
        print("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, "MiB")
    _write(options.out, list(known), head, rows)
    for name, found in scores(list(rows.values())).items():
        print(name, found)


def _predict(wanted: Sequence[Case], hardware: Hardware, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of cases, by as many processes as are allowed."""
    made = partial(predicted_by_name, options.recordings, hardware)
    names = [case.name for case in wanted]
    if options.workers == 1:
        yield from map(made, names)
        return
    with ProcessPoolExecutor(options.workers) as pool:
        yield from pool.map(made, names)


def _write(out: Path, order: list[str], head: dict[str, Any], rows: dict[str, dict[str, Any]]) -> None:
    made = [with_possible_clock(with_error(rows[name])) for name in order if name in rows]
    evidence.write(out, head | {"scores": scores(made)}, made)


def _measure(
    wanted: Sequence[Case], rows: dict[str, dict[str, Any]], seconds: float, before: dict[str, Any], write: Any
) -> dict[str, Any]:
    import torch

    from warploom.runtime.benchmark.power import driver_version
    from warploom.runtime.benchmark.watchdog import Watchdog

    with ProcessPoolExecutor() as pool:
        for failed in filter(None, pool.map(assembled, [case.name for case in wanted])):
            print("not built:", failed, flush=True)
    gpu = torch.cuda.get_device_name()
    head = evidence.header("unseen", gpu="emulator", driver=driver_version())
    head |= {name: before[name] for name in ("source_sha256", "date", "command") if name in before}
    head |= {"measured_on": {"gpu": gpu, "driver": driver_version(), "source_sha256": evidence.source_sha256()}}
    skipped: list[dict[str, str]] = []
    head["skipped"] = skipped

    def hang(who: str) -> None:
        print("no answer from the GPU:", who, flush=True)
        write(head, rows)

    with Watchdog(hang) as watchdog:
        for case in wanted:
            watchdog.beat(case.name, LIMIT_S)
            started = time.perf_counter()
            try:
                found = measured(case, seconds)
            except Exception as error:  # one that fails must not cost the others
                skipped.append({"kernel": case.name, "reason": f"{type(error).__name__}: {error}"[:300]})
                print("skipped", skipped[-1], flush=True)
                continue
            row = rows.get(case.name, {"kernel": case.name, "kind": case.kind})
            blind = {"blind_us": row["predicted_us"]} if "predicted_us" in row and "blind_us" not in row else {}
            rows[case.name] = with_error(row | blind | found)
            write(head, rows)  # what is measured is kept, whatever ends the run
            shown = {name: rows[case.name].get(name, "") for name in ("measured_us", "predicted_us", "error")}
            print(case.name, shown, round(time.perf_counter() - started, 1), "s", flush=True)
    return head


if __name__ == "__main__":
    main()
