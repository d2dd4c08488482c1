"""Read the hardware's counters of measured kernels, by Nsight Compute, for comparison with what the clock predicts.

    python -m benchmarks.profiled [--sets SET …] [--only PART …] [--most N]
                                  [--out benchmarks/results/nvidia-h200/profiled.json]
    python -m benchmarks.profiled --beside [--recordings FOLDER] [--out benchmarks/results/emulator/profiled.json]

The sets are those of `predict_sets`, and "loads", the copies whose power `microbenchmarks` measures. `ncu` runs this
program once more, and profiles the third launch of each kernel, with warm caches and at the clock that the GPU has at
that moment: one launch after a pause is not under the power cap. So clocks, bytes and instructions can be compared, but
not microseconds. The second form needs no GPU: it predicts the kernels of the first one's file, and writes both.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import ml_dtypes  # noqa: E402
import numpy as np  # noqa: E402
from predict_sets import Point, points  # noqa: E402
from recordings import Recordings  # noqa: E402

from benchmarks.microbenchmarks import power  # noqa: E402
from benchmarks.microbenchmarks.harness import READINGS, Measurement  # noqa: E402
from warploom.lab import evidence  # noqa: E402
from warploom.timing import H200, predict  # noqa: E402

OUT = ROOT / "benchmarks/results/nvidia-h200/profiled.json"
BESIDE = ROOT / "benchmarks/results/emulator/profiled.json"
SETS = ("ladder 4096", "few rows", "small M", "attention")
TIMEOUT_S = 540
STALLED, OF_STALLS = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
REASONS = (
    "barrier", "branch_resolving", "dispatch_stall", "drain", "gmma", "imc_miss", "lg_throttle", "long_scoreboard",
    "math_pipe_throttle", "membar", "mio_throttle", "misc", "no_instruction", "not_selected", "selected",
    "short_scoreboard", "sleeping", "tex_throttle", "wait",
)  # fmt: skip
"""Why a warp does not issue, in Nsight Compute's names; "selected": it does."""
COUNTED = {
    "us": ("gpu__time_duration.sum", 1e-3),
    "clocks": ("sm__cycles_elapsed.max", 1),
    "tensor": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", 0.01),
    "issue": ("smsp__issue_active.avg.pct_of_peak_sustained_active", 0.01),
    "instructions": ("smsp__inst_executed.sum", 1),
    "fetched_bytes": ("l1tex__m_xbar2l1tex_read_bytes.sum", 1),
    "l2_bytes": ("lts__t_sectors_srcunit_tex.sum", 32),
    "dram_bytes": ("dram__bytes_read.sum", 1),
    "dram_written_bytes": ("dram__bytes_write.sum", 1),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts.sum", 1),
}
"""By column: the counter, and the factor to the column's unit. tensor: share of the elapsed clocks, issue: of those in
which the SM has a warp; fetched_bytes: what SMs receive, l2_bytes: the sectors that L2 reads or writes for them."""
METRICS = [name for name, _ in COUNTED.values()] + [STALLED + reason + OF_STALLS for reason in REASONS]


# -- under the profiler ----------------------------------------------------------------------------------------------


def loads() -> Iterator[Point]:
    """The copies whose power is measured, on random data. Their shape is the array's, and the number of CTAs."""
    for load in power.loads():
        one = load.measurement
        if load.moved in ("l2", "dram") and len(one.elements) == 2 and one.data == "normal":
            yield Point("loads", one.name, (*one.elements, one.ctas), "bf16", math.nan, partial(_load, one))


def _load(one: Measurement, made: Callable[..., Any]) -> Any:
    inputs, readings = np.zeros(one.elements, ml_dtypes.bfloat16), np.zeros((one.ctas, READINGS), np.uint64)
    return made(one.build(), inputs, out=readings)


def chosen(sets: Sequence[str], only: Sequence[str], most: int) -> Iterator[Point]:
    every = {**points(most), "loads": loads}
    for name in sets:
        for point in every[name]():
            if not only or any(part in f"{point.part} {point.kernel}" for part in only):
                yield point


def launch(kernel: Any, *arrays: Any, out: Any = None, registers: int = 0, **numbers: Any) -> Any:
    """Launch a kernel three times with random numbers in its arrays; the third time the profiler counts."""
    import torch

    def moved(array: Any) -> Any:
        kind = getattr(torch, array.dtype.name)
        if array.dtype.kind in "iu":
            return torch.from_numpy(np.ascontiguousarray(array)).cuda()
        return torch.randn(array.shape, device="cuda").to(kind)

    inputs = [moved(array) if isinstance(array, np.ndarray) else array for array in arrays]
    outputs = tuple(moved(array) for array in out) if isinstance(out, tuple) else out
    given = outputs[0] if isinstance(outputs, tuple) and len(outputs) == 1 else outputs
    given = moved(given) if isinstance(given, np.ndarray) else given
    for turn in range(3):
        torch.cuda.synchronize()
        if turn == 2:
            torch.cuda.profiler.start()
        kernel(*inputs, out=given, **numbers)
        torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return None


def launch_all(wanted: Sequence[Point], names: Path) -> None:
    """Launch each point, and write which launches they were."""
    made: list[dict[str, Any]] = []
    for point in wanted:
        count = 0

        def once(kernel: Any, *arrays: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            launch(kernel, *arrays, **options)

        try:
            point.record(once)
        except Exception as error:  # noqa: BLE001 - one kernel that fails must not cost the others
            print(point.kernel, type(error).__name__, error, file=sys.stderr, flush=True)
        m, n, k = point.shape
        made += [{"set": point.part, "kernel": point.kernel, "m": m, "n": n, "k": k, "dtype": point.dtype}] * count
        names.write_text(json.dumps(made))


# -- its output ------------------------------------------------------------------------------------------------------


def counted(text: str) -> list[dict[str, Any]]:
    """The rows of `ncu --csv --page raw`, one for each launch, in our columns and units."""
    lines = text.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith('"ID"'))
    names, _, *rows = csv.reader(io.StringIO("\n".join(lines[begin:])))
    found = []
    for row in rows:
        if len(row) != len(names):
            continue  # what the program itself printed
        values = dict(zip(names, row, strict=True))

        def number(metric: str, values: dict[str, str] = values) -> float:
            return float(values[metric].replace(",", ""))

        made: dict[str, Any] = {"entry": values["Kernel Name"].partition("(")[0]}
        for column, (metric, factor) in COUNTED.items():
            made[column] = round(number(metric) * factor, 4)
        stalls = {reason: number(STALLED + reason + OF_STALLS) for reason in REASONS}
        whole = sum(stalls.values())
        made["stalls"] = {reason: round(share / whole, 3) for reason, share in stalls.items() if share / whole >= 0.005}
        found.append(made)
    return found


def profile(arguments: Sequence[str]) -> list[dict[str, Any]]:
    """Run this program under ncu. Raises RuntimeError with its last words if it counts nothing."""
    tool = shutil.which("ncu")
    if tool is None:
        raise RuntimeError("Nsight Compute's `ncu` is not on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "names.json"
        command = [
            tool, "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS),
            "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off",
            sys.executable, "-m", "benchmarks.profiled", "--launch", str(names), *arguments,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, cwd=ROOT)
        print(done.stderr, file=sys.stderr, end="", flush=True)
        if '"ID"' not in done.stdout:
            raise RuntimeError(f"ncu counted nothing: {(done.stdout or done.stderr)[-500:]}")
        labels, rows = json.loads(names.read_text()), counted(done.stdout)
    if len(labels) != len(rows):
        raise RuntimeError(f"{len(labels)} kernels were launched, but {len(rows)} were profiled")
    return [{**label, **row} for label, row in zip(labels, rows, strict=True)]


# -- next to the prediction ------------------------------------------------------------------------------------------


def beside(measured: Sequence[dict[str, Any]], most: int, kept: Recordings) -> Iterator[dict[str, Any]]:
    """The measured rows, each with what the clock predicts for its kernel."""
    by_name: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in measured:  # two kernels may have one name; both files have them in the order of their set
        by_name.setdefault((row["set"], row["kernel"], row["m"], row["n"], row["k"]), []).append(row)
    for point in chosen(sorted({row["set"] for row in measured}), (), most):
        rows = by_name.get((point.part, point.kernel, *point.shape))
        if not rows:
            continue
        row = rows.pop(0)
        made = point.record(kept.record)
        if isinstance(made, list):
            continue  # several launches have one prediction
        found = predict(made[0], H200, made[1])
        stalls: dict[str, dict[str, float]] = {
            role: {what: round(share, 3) for what, share in waits.items() if share >= 0.005}
            for role, waits in found.waits.items()
        }
        yield {**row, "predicted": {
            "us": round(found.us, 2), "clocks": round(found.clocks), "tensor": round(found.roofs["tensor"], 4),
            "issue": round(found.roofs["issue"], 4), "instructions": round(found.instructions),
            "fetched_bytes": round(found.l2_bytes), "dram_bytes": round(found.dram_bytes), "waits": stalls,
        }}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=list(SETS))
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    parser.add_argument("--most", type=int, default=4, help="kernels of a long set")
    parser.add_argument("--beside", action="store_true", help="predict the profiled kernels, without a GPU")
    parser.add_argument("--recordings", type=Path)
    parser.add_argument("--launch", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.launch:
        launch_all(list(chosen(options.sets, options.only, options.most)), options.launch)
    elif options.beside:
        given = json.loads(OUT.read_text())
        rows = []
        for row in beside(given["rows"], given["most"], Recordings(options.recordings)):
            print(row["kernel"], row["clocks"], row["predicted"]["clocks"], flush=True)
            rows.append(row)
        evidence.write(options.out or BESIDE, evidence.header("profiled", gpu="emulator"), rows)
    else:
        import torch

        from warploom.runtime.benchmark.power import driver_version

        arguments = ["--sets", *options.sets, "--most", str(options.most)]
        rows = profile([*arguments, "--only", *options.only] if options.only else arguments)
        head = evidence.header("profiled", gpu=torch.cuda.get_device_name(), driver=driver_version())
        evidence.write(options.out or OUT, {**head, "most": options.most}, rows)


if __name__ == "__main__":
    main()
