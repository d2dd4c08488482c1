"""Time products that were measured and count their SM clock again, plain launches and counting ones in turns.

    python benchmarks/product_clocks.py [--only SET …] [--workers N] [--out product-clocks.json]

The GPU is kept busy with the same kernel for `SETTLE_S` before anything counts, and each slice of counting launches
gives a time and a clock of its own: `probe_us` next to `us` shows that counting changes nothing. `settling` in the head
of the file has the seconds since a pause, the time and the clock of slices: the clock is high for 50 ms.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from predict_sets import outputs_for, rows_of, zeros_for  # noqa: E402

from warploom.kernels.ladder import find  # noqa: E402
from warploom.lab import evidence  # noqa: E402
from warploom.lab.operands import ROTATED_BYTES  # noqa: E402
from warploom.lab.recipe import rebuild  # noqa: E402

SETS = ("square-bf16", "llm-bf16", "small-k-bf16", "ladder-4096", "ladder")
FIRST_RUNG = 12
SETTLE_S, SLICE_S, SLICES, PAUSE_S, SETTLING_S = 0.5, 0.05, 5, 2.0, 2.5


@dataclass(frozen=True)
class Case:
    """A row of an evidence file, and its kernel."""

    part: str
    row: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.row["kernel"]) if self.rung else f"{self.row['kernel']} {self.row['config']}"

    @property
    def rung(self) -> bool:
        return "rung" in self.row

    def build(self) -> Any:
        return find(self.row["rung"]).build() if self.rung else rebuild(self.row["build"])

    def arguments(self, kernel: Any, device: str) -> list[tuple[list[Any], Any]]:
        """(inputs of random normal data, output) of as many sets as exceed L2."""
        import torch

        sizes = {"M": self.row["m"], "N": self.row["n"], "K": self.row["k"]}
        shapes = [array.shape for array in zeros_for(kernel, sizes)]
        (out,) = outputs_for(kernel, sizes)
        total = 2 * sum(a * b for a, b in (*shapes, out.shape))
        return [
            ([torch.randn(shape, device=device).bfloat16() for shape in shapes],
             torch.empty(out.shape, device=device, dtype=torch.bfloat16))
            for _ in range(-(-ROTATED_BYTES // total))
        ]  # fmt: skip


def cases(only: list[str]) -> Iterator[Case]:
    for part in only or SETS:
        for row in rows_of(part):
            ours = row.get("provider", "warploom") == "warploom" and row["protocol"] == "alone"
            if ours and row.get("rung", FIRST_RUNG) >= FIRST_RUNG:
                yield Case(part, row)


def assembled(only: list[str], number: int) -> None:
    """Build a case's two texts into the cache, in a process of its own."""
    from warploom.runtime.benchmark.clock import Probe
    from warploom.runtime.on_gpu import build

    program = list(cases(only))[number].build().program()
    for each in (program, Probe(program).program):
        build(each)


class Measurement:
    """Slices of a case on a GPU."""

    def __init__(self, case: Case, gpu: Any) -> None:
        from warploom.runtime.benchmark.clock import Probe
        from warploom.runtime.benchmark.protocols import launches_for

        kernel = case.build()
        self.timer, self.probe = gpu.timer, Probe(kernel.program())
        sets = case.arguments(kernel, "cuda")
        self.plain, self.counting = (
            gpu.ready([partial(call, *inputs, out=out) for inputs, out in sets], "graph")
            for call in (kernel, self.probe.call)
        )
        self.launches = launches_for(self.timer, self.plain[0], SLICE_S)

    def us(self, ready: tuple[Callable[[], object], int]) -> float:
        call, launches = ready
        return float(self.timer.timed(call, self.launches) / launches * 1e6)

    def counted(self) -> tuple[float, float]:
        """Microseconds and megahertz of a slice of counting launches."""
        from warploom.runtime.benchmark.clock import between

        first = self.probe.marks()
        us = self.us(self.counting)
        return us, between(first, self.probe.marks()).megahertz


def settling(measurement: Measurement) -> list[list[float]]:
    """(seconds since the pause, us, MHz) of slices after a pause."""
    measurement.timer.idle(PAUSE_S)
    started, found = time.perf_counter(), []
    while (passed := time.perf_counter() - started) < SETTLING_S:
        us, mhz = measurement.counted()
        found.append([round(passed, 3), round(us, 2), round(mhz, 1)])
    return found


def measured(case: Case, measurement: Measurement, meter: Any) -> dict[str, Any]:
    from warploom.runtime.benchmark.protocols import Spread

    until = time.perf_counter() + SETTLE_S
    while time.perf_counter() < until:
        measurement.us(measurement.plain)
    meter.label = label = f"{case.part} {case.name} {case.row['m']} {case.row['k']}"
    plain, counted = [], []
    for _ in range(SLICES):
        plain.append(measurement.us(measurement.plain))
        counted.append(measurement.counted())
    meter.label = None
    readings = meter.labelled.get(label)
    row = {name: case.row[name] for name in ("m", "n", "k", "dtype")}
    return {
        "set": case.part, "kernel": case.name, **row, "protocol": "alone",
        "us": Spread(plain).as_dict(digits=2), "probe_us": Spread([us for us, _ in counted]).as_dict(digits=2),
        "kernel_clock_mhz": round(statistics.median(mhz for _, mhz in counted), 1),
        "clock_mhz": Spread([mhz for _, mhz in counted]).as_dict(digits=1),
        "power_w": readings and readings.watts and round(readings.watts, 1),
        "before": {"us": case.row["us"]["median"], "kernel_clock_mhz": case.row.get("kernel_clock_mhz")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help=f"of {', '.join(SETS)}")
    parser.add_argument("--workers", type=int, default=16, help="processes that assemble")
    parser.add_argument("--out", type=Path, default=Path("product-clocks.json"))
    options = parser.parse_args()
    import torch

    from warploom.runtime.benchmark.gpu import Gpu
    from warploom.runtime.benchmark.power import PowerMeter, driver_version

    wanted = list(cases(options.only))
    with ProcessPoolExecutor(options.workers) as pool:
        list(pool.map(partial(assembled, options.only), range(len(wanted))))
    gpu = Gpu(0, limit_s=10.0)
    head = evidence.header("product-clocks", gpu=gpu.name, driver=driver_version())
    rows: list[dict[str, Any]] = []
    with PowerMeter(gpu.uuid) as meter:
        for number, case in enumerate(wanted):
            measurement = Measurement(case, gpu)
            if not number:
                head["settling"] = settling(measurement)
            rows.append(measured(case, measurement, meter))
            print(rows[-1], flush=True)
            evidence.write(options.out, head, rows)
            del measurement
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
