"""Does an SM start its next CTA before the stores of the previous one have arrived?

    python -m benchmarks.cta_handover [--out benchmarks/results/nvidia-h200/cta-handover.json]

Each CTA occupies an SM alone, stores some vectors for each thread, passes a barrier, and reads the SM's clock; then it
exits. The next CTA on that SM reads the same clock first. A row has the median time between the two, and how long a
fence after the same stores takes, which is until they have arrived. If the time between CTAs does not grow with what
the fence takes, the next CTA starts before.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warploom.isa.dtypes import u32, u64
from warploom.lab import evidence
from warploom.lang import Kernel, Tile, kernel, ptx, reg, smem
from warploom.runtime.benchmark.power import driver_version
from warploom.runtime.benchmark.watchdog import Watchdog

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks/results/nvidia-h200/cta-handover.json"
SMS, THREADS, PER_SM = 132, 256, 8
VECTOR_BYTES, OCCUPIED_BYTES = 16, 200 << 10
READINGS = 4
"""Words of a CTA: the clock at its start, after its last store and barrier, at its end, and its SM."""
VECTORS = (0, 1, 4, 16, 64)
WAYS = ("store", "fence", "bulk")


def made(way: str, vectors: int) -> Kernel:
    """way: "store": exits after the stores; "fence": after a fence of device scope; "bulk": copies of the whole from
    shared memory (cp.async.bulk), of which it waits only for the reads."""
    bytes_of_cta = THREADS * VECTOR_BYTES * vectors

    @kernel(
        in_specs=(Tile("N", u32, inout=True),), out_specs=(Tile("CTAS", READINGS, u64),), grid=(PER_SM * SMS, 1, 1),
        block=THREADS, arch="sm_90a", name=f"handover_{way}_{vectors}",
    )  # fmt: skip
    def program(data, out):
        start = ptx.special.clock64()
        occupied = smem.array(u32, OCCUPIED_BYTES // 4, align=128, name="occupied")
        target, readings = ptx.global_ptrs(data, out)
        cta, thread = ptx.special.ctaid.x(), ptx.special.tid.x()
        place = (target + cta.to(u64) * bytes_of_cta + thread.to(u64) * VECTOR_BYTES).copy()
        word = reg.scalar(u32, init=1)
        if way == "bulk" and vectors:
            with ptx.if_(thread == 0):
                ptx.inst("cp.async.bulk.global.shared::cta.bulk_group", ptx.addr(place), occupied[0],
                         bytes_of_cta)  # fmt: skip
                ptx.inst("cp.async.bulk.commit_group")
                ptx.inst("cp.async.bulk.wait_group.read", 0)
        else:
            for vector in range(vectors):
                ptx.inst("st.global.v4.u32", ptx.addr(place, vector * THREADS * VECTOR_BYTES), (word, word, word, word))
        ptx.bar.sync(0)
        issued = ptx.special.clock64()
        if way == "fence":
            ptx.fence.acq_rel("gpu")
            ptx.bar.sync(0)
        end = ptx.special.clock64()
        with ptx.if_(thread == 0):
            mine = readings + cta.to(u64) * (READINGS * u64.bytes)
            for at, value in enumerate((start, issued, end, ptx.special.smid().to(u64))):
                ptx.store(ptx.addr(mine, at * u64.bytes), value)

    return program


def measured(way: str, vectors: int) -> dict[str, Any]:
    import torch

    launched = made(way, vectors)
    data = torch.zeros(max(1, PER_SM * SMS * THREADS * 4 * vectors), dtype=torch.int32, device="cuda").view(
        torch.uint32
    )
    out = torch.zeros((PER_SM * SMS, READINGS), dtype=torch.int64, device="cuda").view(torch.uint64)
    gaps, stores, drains = [], [], []
    for _ in range(3):
        launched(data, out=out)
        torch.cuda.synchronize()
        by_sm: dict[int, list[list[int]]] = defaultdict(list)
        for row in out.cpu().view(torch.int64).tolist():
            by_sm[row[3]].append(row)
        for rows in by_sm.values():
            rows.sort()
            gaps += [later[0] - earlier[2] for earlier, later in zip(rows, rows[1:], strict=False)]
            stores += [row[1] - row[0] for row in rows]
            drains += [row[2] - row[1] for row in rows]
    ordered = sorted(gaps)
    return {
        "way": way, "bytes_of_cta": THREADS * VECTOR_BYTES * vectors, "handovers": len(gaps),
        "gap_clocks": statistics.median(gaps), "gap_tenth": ordered[len(gaps) // 10],
        "gap_nine_tenths": ordered[len(gaps) * 9 // 10], "issue_clocks": statistics.median(stores),
        "fence_clocks": statistics.median(drains), "ptx_sha256": evidence.ptx_sha256(launched.ptx()),
    }  # fmt: skip


def rows(watchdog: Watchdog) -> Iterator[dict[str, Any]]:
    for way in WAYS:
        for vectors in VECTORS:
            if way == "bulk" and THREADS * VECTOR_BYTES * vectors > OCCUPIED_BYTES:
                continue
            watchdog.beat(f"{way}, {vectors} vectors", 60)
            yield measured(way, vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    import torch

    found = []
    with Watchdog(lambda who: print("no answer from the GPU:", who, flush=True)) as watchdog:
        for row in rows(watchdog):
            found.append(row)
            print({key: value for key, value in row.items() if key != "ptx_sha256"}, flush=True)
    head = evidence.header("cta-handover", gpu=torch.cuda.get_device_name(), driver=driver_version())
    evidence.write(options.out, head, found)


if __name__ == "__main__":
    main()
