"""Run the all-gather's kernel as if one GPU were several: each rank has a stream and a share of the multiprocessors.

    python -m benchmarks.peers_on_one_gpu [--out benchmarks/results/nvidia-h200/peers-on-one-gpu.json] [--seconds 120]

What this shows: that a form is right on hardware, with its fences and signals, launch after launch, and what pushing
costs the multiprocessors. What it does not show: links. Peers' memory is this GPU's own, so rows never wait for NVLink,
and copy engines, which need streams of their own beside the kernels', are left out.

Each rank's launch has as many CTAs as its share of the multiprocessors, so that those of all ranks are resident
together. Every contender is compared with a product in f32 first, in `CHECKED` launches with other rows each. Times are
of `CALLS` launches on all ranks, between events of the default stream; contenders take turns, and the figure is the
median of `ROUNDS` rounds.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from warploom.collective.tile import timeout_record
from warploom.collective.tile.peer_signals import STATE_WORDS
from warploom.collective.tile.sizes import OneCtaPerSm
from warploom.kernels.hopper import gemm_all_gather, ranked_tile

CALLS, ROUNDS, CHECKED = 10, 7, 5
PATIENCE_MS, STEP_S = 2000, 60
TOLERANCE = 0.02
SHAPES = [(2, 2048, 4096, 8192), (2, 520, 2048, 4096), (4, 1024, 2048, 8192), (4, 300, 1024, 2056)]
"""Ranks, and M, N, K of a rank: its rows of A and columns of B."""
FORMS: dict[str, dict[str, Any]] = {
    "push": {},
    **{f"tma, {count} in flight": {"by": "tma", "in_flight": count} for count in (4, 6, 8, 12)},
}


@dataclass(frozen=True)
class Share(OneCtaPerSm):
    """As many CTAs as a rank's share of the multiprocessors."""

    ranks: int = 1

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        return (machine.clusters(1) // self.ranks, 1, 1)


class Ranks:
    """The tensors and streams of all ranks for one product, and one form of its kernel."""

    def __init__(self, torch: Any, ranks: int, rows: int, columns: int, depth: int, options: dict[str, Any]) -> None:
        self.torch, self.ranks = torch, ranks
        sms, by = torch.cuda.get_device_properties(0).multi_processor_count, options.get("by", "push")
        config = ranked_tile.choose(rows, columns, ranks, sms // ranks, slots=by == "tma")
        with mock.patch.object(gemm_all_gather, "OneCtaPerSm", partial(Share, ranks=ranks)):
            self.kernel = gemm_all_gather.build.__wrapped__(ranks, config=config, **options)  # type: ignore[attr-defined]

        def words(count: int) -> list[Any]:
            return [torch.zeros(count, dtype=torch.int32, device="cuda") for _ in range(ranks)]

        def drawn(*shape: int) -> list[Any]:
            return [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(ranks)]

        self.a, self.b = drawn(1, rows, depth), drawn(columns, depth)
        self.gathered = [each.fill_(float("nan")) for each in drawn(ranks, rows, depth)]
        self.out = drawn(ranks, rows, columns)
        self.counters = words(gemm_all_gather.counters(rows, ranks, config, by))
        self.state, self.record = words(STATE_WORDS), words(timeout_record.words(sms * -(-config.threads // 32)))
        for each in self.record:
            each[timeout_record.TIMEOUT] = PATIENCE_MS
        self.streams = [torch.cuda.Stream() for _ in range(ranks)]

    def __call__(self) -> None:
        """Launch on all ranks."""
        u32 = self.torch.uint32
        for rank, stream in enumerate(self.streams):
            with self.torch.cuda.stream(stream):
                self.kernel(
                    self.a[rank], self.b[rank], tuple(self.gathered), tuple(each.view(u32) for each in self.counters),
                    self.state[rank].view(u32), self.record[rank].view(u32), rank, out=self.out[rank],
                )  # fmt: skip

    def many(self, calls: int) -> None:
        """Launch often, behind the work of the default stream and before its next work."""
        default = self.torch.cuda.current_stream()
        for stream in self.streams:
            stream.wait_stream(default)
        for _ in range(calls):
            self()
        for stream in self.streams:
            default.wait_stream(stream)

    def error(self) -> float:
        """The largest relative error of `CHECKED` launches, infinite if a wait timed out."""
        worst = 0.0
        for _ in range(CHECKED):
            for each in self.a:
                each.normal_()
            self.many(1)
            self.torch.cuda.synchronize()
            whole = self.torch.cat([each[0] for each in self.a]).float()
            for b, out in zip(self.b, self.out, strict=True):
                right = whole @ b.float().mT
                worst = max(worst, float((out.view_as(right).float() - right).norm() / right.norm()))
        late = any(timeout_record.timed_out(each.cpu().tolist()) for each in self.record)
        return float("inf") if late or worst != worst else worst


def microseconds(torch: Any, call: Callable[[], None]) -> float:
    """Microseconds of what is enqueued by a call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1000


def measured(torch: Any, ranks: int, rows: int, columns: int, depth: int) -> dict[str, Any]:
    """A row of the evidence."""
    contenders = {name: Ranks(torch, ranks, rows, columns, depth, options) for name, options in FORMS.items()}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda each: each.kernel.resources(), contenders.values()))
    errors = {name: each.error() for name, each in contenders.items()}
    failed = [name for name, error in errors.items() if not error < TOLERANCE]
    found: dict[str, list[float]] = {name: [] for name in contenders if name not in failed}
    for _ in range(ROUNDS):
        for name in found:
            contenders[name].many(1)
            torch.cuda.synchronize()
            found[name].append(microseconds(torch, lambda name=name: contenders[name].many(CALLS)) / CALLS)  # type: ignore[misc]
    us = {name: round(statistics.median(each), 2) for name, each in found.items()}
    sizes = {"ranks": ranks, "rows": rows, "columns": columns, "depth": depth}
    return {**sizes, "relative_error": errors, "failed": failed, "us": us, "rounds": found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="")
    parser.add_argument("--seconds", type=float, default=120.0, help="no row is begun after that")
    options = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print("this needs a GPU")
        return 1
    began, evidence = time.time(), {"suite": "peers-on-one-gpu", "gpu": torch.cuda.get_device_name(0), "rows": []}
    evidence |= {"command": "python -m benchmarks.peers_on_one_gpu", "date": time.strftime("%Y-%m-%d"),
                 "versions": {"torch": torch.__version__},
                 "protocol": f"in turns, median of {ROUNDS} rounds of {CALLS} launches on all ranks"}  # fmt: skip
    for shape in SHAPES:
        if time.time() - began > options.seconds:
            break
        faulthandler.dump_traceback_later(STEP_S, exit=True)
        row = measured(torch, *shape)
        print(*shape, row["us"], row["relative_error"], row["failed"], flush=True)
        evidence["rows"].append(row)
        if options.out:
            Path(options.out).write_text(json.dumps(evidence, indent=1) + "\n")
    faulthandler.cancel_dump_traceback_later()
    return int(any(row["failed"] for row in evidence["rows"]))


if __name__ == "__main__":
    sys.exit(main())
