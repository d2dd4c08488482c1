"""Decode attention beside cuDNN's and the flash backend of torch's scaled_dot_product_attention, in graphs.

    python -m benchmarks.attention_decode [--out FILE] [--only WORDS] [--seconds 0.3] [--budget 400]

Bytes are those of K and V that a call reads, once each; 4.71 TB/s is the read ceiling that the other evidence of this
GPU counts by. Data are random normal. Caches rotate where they are smaller than L2. Each contender runs as one CUDA
graph of `CALLS` calls, blocks of the contenders alternate, and each is held against float64 on some heads first.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import warploom
from warploom.kernels.hopper import attention_decode as kernels
from warploom.kernels.hopper.attention_decode_config import Decode, decode_config
from warploom.lab import evidence
from warploom.lab.recipe import recipe
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.gpu import Gpu
from warploom.runtime.benchmark.power import PowerMeter, driver_version
from warploom.runtime.benchmark.watchdog import Watchdog

CEILING_TBS = 4.71
L2_BYTES = 60 << 20
CALLS = 20
ERROR, LSE_ERROR = 4e-3, 1e-5


@dataclass(frozen=True)
class Case:
    """What is timed: `batch` sequences of `length` keys, `queries` tokens of `heads` on `kv_heads`; pages of `page`.

    ragged: lengths differ, from a sixteenth of `length` up to it. narrow: the cache is e4m3.
    """

    batch: int
    length: int
    queries: int = 1
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    page: int = 0
    ragged: bool = False
    narrow: bool = False

    @property
    def name(self) -> str:
        words = [f"{self.batch} x {self.length}", f"{self.heads}/{self.kv_heads} heads of {self.dim}"]
        words += [f"{self.queries} tokens"] if self.queries > 1 else []
        words += [f"page {self.page}"] if self.page else []
        return " ".join(words + (["ragged"] if self.ragged else []) + (["e4m3"] if self.narrow else []))

    @property
    def lengths(self) -> list[int]:
        if not self.ragged:
            return [self.length] * self.batch
        return [max(1, self.length * (1 + index * 7 % 16) // 16) for index in range(self.batch)]

    @property
    def bytes(self) -> int:
        """Of K and V."""
        return sum(self.lengths) * self.kv_heads * self.dim * 2 * (1 if self.narrow else 2)


SUITE = (
    Case(16, 8192), Case(64, 8192), Case(1, 65536), Case(1, 1024), Case(1, 8192), Case(4, 4096), Case(32, 2048),
    Case(128, 1024), Case(16, 8192, heads=64), Case(16, 8192, heads=8), Case(16, 8192, queries=4),
    Case(16, 8192, dim=64), Case(16, 8192, dim=256, heads=16, kv_heads=4), Case(64, 8192, ragged=True),
    Case(16, 8192, page=16), Case(64, 8192, page=16), Case(16, 8192, page=64), Case(16, 8192, page=128),
    Case(16, 8192, page=256), Case(16, 8192, page=1), Case(64, 8192, page=16, ragged=True),
    Case(16, 8192, narrow=True), Case(64, 8192, page=16, narrow=True),
)  # fmt: skip


@dataclass
class Cache:
    """The tensors of one call, in torch's layout; pages are scattered."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    lengths: torch.Tensor
    pages: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None


def make(case: Case, seed: int) -> Cache:
    generator = torch.Generator("cuda").manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.bfloat16)

    q = normal(case.batch, case.heads, case.queries, case.dim)
    k, v = (normal(case.batch, case.kv_heads, case.length, case.dim) for _ in range(2))
    if case.narrow:
        k, v = (array.to(torch.float8_e4m3fn) for array in (k, v))
    lengths = torch.tensor(case.lengths, dtype=torch.int32, device="cuda")
    pages = None
    if case.page:
        width = case.length // case.page
        table = torch.randperm(case.batch * width, generator=generator, device="cuda").reshape(case.batch, width)
        pools = []
        for array in (k, v):
            pool = torch.empty(case.batch * width, case.kv_heads, case.page, case.dim, device="cuda", dtype=q.dtype)
            cut = array.to(q.dtype).reshape(case.batch, case.kv_heads, width, case.page, case.dim)
            pool[table] = cut.transpose(1, 2)
            pools.append(pool.to(array.dtype))
        pages = (pools[0], pools[1], table.to(torch.int32))
    return Cache(q, k, v, lengths, pages)


def exact(case: Case, cache: Cache, row: int, head: int) -> tuple[torch.Tensor, torch.Tensor]:
    """O and the logarithms of one head of one sequence, in float64."""
    length = case.lengths[row]
    k, v = (array[row, head * case.kv_heads // case.heads, :length].double() for array in (cache.k, cache.v))
    scores = cache.q[row, head].double() @ k.T / math.sqrt(case.dim)
    ends = length - case.queries + 1 + torch.arange(case.queries, device="cuda")[:, None]
    scores.masked_fill_(torch.arange(length, device="cuda") >= ends, -math.inf)
    return torch.softmax(scores, -1) @ v, torch.logsumexp(scores, -1)


def ours(case: Case, cache: Cache, out: torch.Tensor, lse: torch.Tensor) -> None:
    k, v, table = cache.pages or (cache.k, cache.v, None)
    warploom.attention_decode(cache.q, k, v, cache.lengths, table=table, out=out, lse=lse)


def torchs(case: Case, backend: SDPBackend) -> Callable[[Cache], torch.Tensor]:
    def call(cache: Cache) -> torch.Tensor:
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(cache.q, cache.k, cache.v, enable_gqa=case.heads != case.kv_heads)

    return call


def graph_of(calls: Sequence[Callable[[], Any]]) -> Callable[[], None]:
    """`CALLS` calls in turn as one graph."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(CALLS):
            calls[index % len(calls)]()
    return graph.replay


def contenders(case: Case, caches: list[Cache]) -> Iterator[tuple[str, list[Callable[[], torch.Tensor]], Any]]:
    """Name, a call for each cache that gives the result, and the logarithms of the first."""
    outs = [torch.empty_like(cache.q) for cache in caches]
    sums = [torch.empty(cache.q.shape[:3], device="cuda") for cache in caches]

    def own(index: int) -> torch.Tensor:
        ours(case, caches[index], outs[index], sums[index])
        return outs[index]

    yield "warploom", [partial(own, index) for index in range(len(caches))], sums[0]
    if (
        case.page or case.ragged or case.narrow or case.queries > 1
    ):  # torch has no mask for them that keeps its fast kernels
        return
    for name, backend in (("cudnn", SDPBackend.CUDNN_ATTENTION), ("flash", SDPBackend.FLASH_ATTENTION)):
        call = torchs(case, backend)
        yield name, [partial(call, cache) for cache in caches], None


def checked(case: Case, cache: Cache, out: torch.Tensor, lse: torch.Tensor | None) -> dict[str, float]:
    """Errors on the first and the last head. Raises ValueError where ours is wrong."""
    off = norm = worst = 0.0
    for row, head in ((0, 0), (case.batch - 1, case.heads - 1)):
        wanted, sums = exact(case, cache, row, head)
        off += float((out[row, head].double() - wanted).norm()) ** 2
        norm += float(wanted.norm()) ** 2
        if lse is not None:
            worst = max(worst, float((lse[row, head].double() - sums).abs().max() / max(1.0, float(sums.abs().max()))))
    found = {"relative_error": (off / norm) ** 0.5} | ({"lse_error": worst} if lse is not None else {})
    if lse is not None and (found["relative_error"] > ERROR or worst > LSE_ERROR):
        raise ValueError(f"{case.name}: wrong, {found}")
    return found


def measure(case: Case, gpu: Gpu, watchdog: Watchdog, meter: PowerMeter, seconds: float) -> Iterator[dict[str, Any]]:
    """The rows of one case."""
    watchdog.beat(f"{case.name}: building", 60)
    caches = [make(case, seed) for seed in range(max(1, min(12, -(-2 * L2_BYTES // case.bytes))))]
    of = Decode(head_dim=case.dim, value_dim=case.dim, paged=bool(case.page), narrow=case.narrow)
    config = decode_config(of, case.queries * case.heads // case.kv_heads, case.page or None)
    facts = evidence.facts(kernels.build(of, config), recipe(kernels.build, of, config))
    replays, errors = {}, {}
    for name, calls, lse in contenders(case, caches):
        watchdog.beat(f"{case.name}: {name}", 60)
        try:
            out = calls[0]()
            torch.cuda.synchronize()
            errors[name] = checked(case, caches[0], out, lse)
            replays[name] = graph_of(calls)
        except RuntimeError as error:  # a backend that does not have it
            print(f"    {name}: {str(error).splitlines()[0][:90]}", flush=True)

    def watch(who: str, counting: bool) -> None:
        watchdog.beat(f"{case.name}: {who}")
        meter.label = who if counting else None

    meter.labelled.clear()
    spreads = protocols.sample("alone", replays, 2 * seconds, gpu.timer, watch=watch, rounds=15)
    meter.label = None
    for name, spread in spreads.items():
        us = spread.as_dict(lambda s: s * 1e6 / CALLS, 2)
        row = {
            "case": case.name, "batch": case.batch, "length": case.length, "page": case.page, "provider": name,
            "protocol": "alone", "us": us, "tb_per_s": round(case.bytes / us["median"] / 1e6, 3),
            "of_ceiling": round(case.bytes / us["median"] / 1e6 / CEILING_TBS, 4),
            "ratio_to": {
                other: round(spreads[other].median / spread.median, 4) for other in spreads if other != name
            }, **errors[name],
        }  # fmt: skip
        power = meter.labelled.get(name)
        if power is not None and power.watts:
            row["power_w"] = round(power.watts, 1)
        if name == "warploom":
            row |= {"kernel": "attention_decode", "config": str(config), **facts}
        yield row


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attention_decode", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", default="", help="cases whose name holds one of these words: 'page;1 x'")
    parser.add_argument("--seconds", type=float, default=0.3, help="of a block")
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no case is begun")
    asked = parser.parse_args(words)
    evidence.check_place(asked.out)
    torch.set_grad_enabled(False)
    gpu = Gpu(0, 20.0)
    rows: list[dict[str, Any]] = []
    head = evidence.header("attention-decode", gpu=gpu.name, driver=driver_version())
    begun = gpu.timer.now()

    def keep(who: str = "") -> None:
        if who:
            print(f"HANG {who}", flush=True)
        if asked.out is not None:
            evidence.write(asked.out, {**head, **meter.header()}, rows)

    with PowerMeter(gpu.uuid) as meter, Watchdog(keep) as watchdog:
        for case in SUITE:
            if not any(words in case.name for words in asked.only.split(";")):
                continue
            if gpu.timer.now() - begun > asked.budget:
                print(f"left out: {case.name}", flush=True)
                continue
            found = list(measure(case, gpu, watchdog, meter, asked.seconds))
            rows += found
            told = ", ".join(f"{row['provider']} {row['us']['median']} us {row['of_ceiling']:.3f}" for row in found)
            print(f"{case.name:40} {told}  error {found[0]['relative_error']:.1e}", flush=True)
            keep()
            torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
