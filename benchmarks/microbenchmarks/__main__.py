"""Measure the GPU, and write `microbenchmarks.json`, from which `warploom.timing` takes its constants.

    python -m benchmarks.microbenchmarks [--only PREFIX …] [--append]
                                         [--out benchmarks/results/nvidia-h200/microbenchmarks.json]

--append keeps the rows of --out that are not measured again. A watchdog guards every launch: a kernel that hangs ends
the program, and earlier rows are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from warploom.lab import evidence
from warploom.runtime.benchmark.power import PowerMeter, driver_version
from warploom.runtime.benchmark.watchdog import Watchdog

from . import (
    arithmetic,
    atomics,
    clearing,
    code_size,
    cold_launches,
    concurrent_issue,
    copies,
    dependent_streams,
    lanes_beside,
    launches,
    memory,
    pending_lines,
    power,
    product,
    reads,
    ring,
    shared,
    shared_port,
    short_ctas,
    softmax,
    synchronisation,
    tensor,
    tpc_pairs,
)
from .harness import READINGS, Measurement

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "benchmarks/results/nvidia-h200/microbenchmarks.json"
MODULES = (
    arithmetic, shared, pending_lines, tensor, concurrent_issue, ring, softmax, synchronisation, copies, memory,
    product, reads, lanes_beside, tpc_pairs, atomics, shared_port, clearing, code_size,
)  # fmt: skip
FLUSH_BYTES = 256 << 20
BURSTS = ("power.wgmma.n256.ctas132", "power.wgmma.n256.zeros", "power.wgmma.e4m3.n256", "power.mma_sync")
BUSY_S = 1.5
"""Duration of a load whose power is read; the second half of the readings counts."""


def everything(only: list[str]) -> tuple[list[Measurement], list[launches.Launch], list[power.Load]]:
    """The measurements whose names begin with one of `only`; all if it is empty."""

    def wanted(name: str) -> bool:
        return not only or any(name.startswith(prefix) for prefix in only)

    timed = [each for module in MODULES for each in module.measurements() if wanted(each.name)]
    grids = (launches, tpc_pairs, dependent_streams, short_ctas, clearing, cold_launches)
    started = [each for module in grids for each in module.launches() if wanted(each.name)]
    return timed, started, [each for each in power.loads() if wanted(each.measurement.name)]


def assemble(number: int, only: list[str]) -> str:
    """Build one kernel into the cache, in its own process; returns the message of a failure."""
    timed, started, loaded = everything(only)
    builds: list[tuple[str, Callable[[], Any]]] = [(x.name, x.build) for x in timed]
    builds += [(x.name, x.build) for x in started]
    builds += [(x.measurement.name, x.measurement.build) for x in loaded]
    try:
        builds[number][1]().resources()
    except Exception as error:
        return f"{builds[number][0]}: {error}"
    return ""


def assemble_all(only: list[str]) -> None:
    timed, started, loaded = everything(only)
    with ProcessPoolExecutor() as pool:
        for failed in filter(
            None, pool.map(partial(assemble, only=only), range(len(timed) + len(started) + len(loaded)))
        ):
            print("not built:", failed)


class Bench:
    """The GPU through torch: arrays, launches, readings."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        self.arrays: dict[Any, Any] = {}
        self.flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")

    def array(self, measurement: Measurement, kernel: Any) -> Any:
        """The input array, of the type that the kernel declares, filled as the measurement requires."""
        torch = self.torch
        dtype, kind = kernel.in_specs[0].dtype.name, measurement.data.partition(":")[0]
        key = dtype, measurement.data, measurement.elements
        if key not in self.arrays:
            large = [each for each in self.arrays if self.arrays[each].numel() > 1 << 27]
            for each in large:
                del self.arrays[each]
            if kind == "chain":
                made = torch.empty(measurement.elements, dtype=torch.int64, device="cuda")
                step, count = int(measurement.data.partition(":")[2]) // 8, made.numel()
                made.copy_((torch.arange(count, device="cuda") + step) % count)
                made.mul_(8).add_(made.data_ptr())
                made = made.view(torch.uint64)
            elif dtype == "u32":
                made = torch.randint(1 << 30, measurement.elements, dtype=torch.int32, device="cuda").view(torch.uint32)
            else:
                made = torch.zeros(measurement.elements, dtype=torch.bfloat16, device="cuda")
                if kind == "normal":
                    made.normal_()
                if dtype in ("e4m3", "f16"):
                    made = made.to(torch.float8_e4m3fn if dtype == "e4m3" else torch.float16)
            self.arrays[key] = made
        return self.arrays[key]

    def flush(self) -> None:
        self.flushed.add_(1)

    def readings(self, out: Any) -> tuple[float, float, float]:
        """Median clocks and nanoseconds of the working CTAs, and nanoseconds from the first start to the last end."""
        rows = [row for row in out.cpu().view(self.torch.int64).tolist() if any(row)]
        clocks = statistics.median(row[1] - row[0] for row in rows)
        spans = statistics.median(row[3] - row[2] for row in rows)
        return clocks, spans, max(row[3] for row in rows) - min(row[2] for row in rows)

    def measure(self, one: Measurement) -> dict[str, Any]:
        torch = self.torch
        kernel = one.build()
        data = self.array(one, kernel)
        out = torch.zeros((one.ctas, READINGS), dtype=torch.int64, device="cuda").view(torch.uint64)
        found = []
        for _ in range(one.launches + 1):
            if "dram" in one.name:
                self.flush()
            kernel(data, out=out)
            torch.cuda.synchronize()
            found.append(self.readings(out))
            if one.workers and (worked := int(out.view(torch.int64).any(1).sum())) != one.workers:
                raise ValueError(f"{worked} CTAs worked, {one.workers} were to work")
        clocks, spans, whole = min(found[1:])
        row = {
            "name": one.name, "of": one.of, **one.facts, "ctas": one.ctas, "repetitions": one.repetitions,
            "clocks": round(clocks / one.repetitions / one.operations, 4),
            "ns": round(spans / one.repetitions / one.operations, 4),
            "clock_mhz": round(clocks / spans * 1e3, 1) if spans else 0,
        }  # fmt: skip
        if one.bytes:
            row["bytes_per_clock"] = round(one.bytes * one.repetitions / clocks, 3)
            row["bytes_per_ns"] = round(one.bytes * one.repetitions / spans, 3) if spans else 0
            row["bytes_per_ns_all"] = (
                round(one.bytes * one.repetitions * (one.workers or one.ctas) / whole, 1) if whole else 0
            )
        return {**row, "ptx_sha256": evidence.ptx_sha256(kernel.ptx())}

    def launch(self, one: launches.Launch) -> dict[str, Any]:
        """Microseconds per launch in a graph of 100, or of as many as have arrays of their own."""
        torch, kernel = self.torch, one.build()
        blank = {"bf16": torch.bfloat16, "u32": torch.uint32}[kernel.in_specs[0].dtype.name]
        count = int(one.facts["launches"]) if "launches" in one.facts else 100

        def arrays(shape: tuple[int, ...], dtype: Any) -> Any:
            """One for each launch, `one.apart` bytes from each other; the same one if that is 0."""
            size, step = math.prod(shape), one.apart // dtype.itemsize
            return torch.zeros(size + step * (count - 1), dtype=dtype, device="cuda").as_strided(
                (count, *shape), (step, *(math.prod(shape[at:]) for at in range(1, len(shape) + 1)))
            )

        data, out = arrays(one.elements or (32,), blank), arrays(one.written or (32,), torch.uint32)
        kernel(data[0], out=out[0])
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for at in range(count):
                kernel(data[at], out=out[at])
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        times = []
        for _ in range(12):
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / count)
        return {
            "name": one.name, "of": one.of, **one.facts, "us": round(statistics.median(times[2:]), 4),
            "ptx_sha256": evidence.ptx_sha256(kernel.ptx()),
        }  # fmt: skip

    def loaded(self, load: power.Load, meter: PowerMeter) -> dict[str, Any]:
        """Watts and clock of a kernel that runs for BUSY_S."""
        torch, one = self.torch, load.measurement
        kernel = one.build()
        data = self.array(one, kernel)
        out = torch.zeros((one.ctas, READINGS), dtype=torch.int64, device="cuda").view(torch.uint64)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        kernel(data, out=out)
        torch.cuda.synchronize()
        until, each = time.monotonic() + BUSY_S, 0.0
        while time.monotonic() < until:
            if time.monotonic() > until - BUSY_S / 2:
                meter.label = one.name
            begin.record()
            for _ in range(8):
                kernel(data, out=out)
            end.record()
            torch.cuda.synchronize()
            each = begin.elapsed_time(end) / 8e3
        meter.label = None
        clocks, spans, _ = self.readings(out)
        read = meter.labelled.get(one.name)
        seconds = spans / 1e9 if spans else each
        row = {
            "name": one.name, "of": one.of, **one.facts, "ctas": one.ctas,
            "watts": round(read.watts, 1) if read and read.watts else None,
            "nvml_mhz": read.megahertz if read else None,
            "clock_mhz": round(clocks / spans * 1e3, 1) if spans else None, "ms": round(each * 1e3, 4),
            "clocks": round(clocks / one.repetitions / one.operations, 4),
        }  # fmt: skip
        if load.flop:
            row["tflops"] = round(load.flop * one.repetitions * one.ctas / seconds / 1e12, 2)
        if load.moved:
            row["moved"] = load.moved
            row["tb_per_s"] = round(one.bytes * one.repetitions * one.ctas / seconds / 1e12, 3)
        return {**row, "ptx_sha256": evidence.ptx_sha256(kernel.ptx())}

    def burst(self, load: power.Load) -> dict[str, Any]:
        """The clock of eight launches after idling."""
        torch, one = self.torch, load.measurement
        kernel = one.build()
        data = self.array(one, kernel)
        out = torch.zeros((one.ctas, READINGS), dtype=torch.int64, device="cuda").view(torch.uint64)
        kernel(data, out=out)
        torch.cuda.synchronize()
        time.sleep(1.0)
        for _ in range(8):
            kernel(data, out=out)
        torch.cuda.synchronize()
        clocks, spans, _ = self.readings(out)
        return {"name": one.name.replace("power.", "burst."), "of": one.of, "clock_mhz": round(clocks / spans * 1e3, 1)}

    def idle(self, meter: PowerMeter, seconds: float = 1.0) -> dict[str, Any]:
        self.torch.cuda.synchronize()
        time.sleep(seconds / 2)
        meter.label = "power.idle"
        time.sleep(seconds / 2)
        meter.label = None
        read = meter.labelled.get("power.idle")
        return {"name": "power.idle", "of": "nothing runs, the context is there", "watts": read.watts if read else None,
                "nvml_mhz": read.megahertz if read else None}  # fmt: skip


def rows(only: list[str], watchdog: Watchdog, meter: PowerMeter) -> Iterator[dict[str, Any]]:
    timed, started, loaded = everything(only)
    watchdog.beat("the first arrays", 60)
    bench = Bench()
    steps: list[tuple[str, Callable[[], dict[str, Any]]]] = []
    steps += [(x.name, lambda x=x: bench.measure(x)) for x in timed]  # type: ignore[misc]
    steps += [(x.name, lambda x=x: bench.launch(x)) for x in started]  # type: ignore[misc]
    steps += [("power.idle", lambda: bench.idle(meter))] if loaded else []
    steps += [(x.measurement.name, lambda x=x: bench.loaded(x, meter)) for x in loaded]  # type: ignore[misc]
    bursts = [each for each in loaded if each.measurement.name in BURSTS]
    steps += [(x.measurement.name, lambda x=x: bench.burst(x)) for x in bursts]  # type: ignore[misc]
    for name, step in steps:
        watchdog.beat(name, 20)
        try:
            yield step()
        except Exception as error:  # one that fails must not cost the others
            yield {"name": name, "error": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="beginnings of names")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--append", action="store_true", help="keep the other rows that --out has")
    parser.add_argument("--assemble", action="store_true", help="only build the kernels into the cache")
    options = parser.parse_args()
    assemble_all(options.only)
    if options.assemble:
        return
    import torch

    head = evidence.header("microbenchmarks", gpu=torch.cuda.get_device_name(), driver=driver_version())
    found: list[dict[str, Any]] = []
    kept: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.append else []

    def together() -> list[dict[str, Any]]:
        new = {row["name"]: row for row in found}
        return [new.pop(row["name"], row) for row in kept] + list(new.values())

    def hang(who: str) -> None:
        print("no answer from the GPU:", who, flush=True)
        evidence.write(options.out, head, together())

    with PowerMeter() as meter, Watchdog(hang) as watchdog:
        for row in rows(options.only, watchdog, meter):
            found.append(row)
            if "error" in row:
                print(row["name"], row["error"], flush=True)
    evidence.write(options.out, head, together())
    print(len(found), "rows,", sum("error" in row for row in found), "failed")


if __name__ == "__main__":
    main()
