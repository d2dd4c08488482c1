"""Time fields of the attention kernels' configurations, beside the library's choice and cuDNN, with little preparation.

    python -m benchmarks.attention_fields [--out FILE] [--only decode] [--budget 100]

Results are compared with those of the choice; `benchmarks.attention` and `benchmarks.attention_decode` compare with
float64. Decoding steps are timed as graphs in random slices, forward passes in blocks of one kernel.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from warploom.kernels.hopper import attention, attention_decode
from warploom.kernels.hopper.attention_config import default
from warploom.lab.attention_contenders import choice, decode_subject, subject
from warploom.lab.attention_problem import AttentionWork, DecodeProblem, ForwardProblem
from warploom.operators.spec.gpu import EMULATED

CASES: tuple[AttentionWork, ...] = (
    DecodeProblem(16, 8192), DecodeProblem(1, 65536), DecodeProblem(32, 2048), DecodeProblem(16, 8192, narrow=True),
    DecodeProblem(4, 4096), DecodeProblem(1, 8192), DecodeProblem(64, 8192),
    *(ForwardProblem(width, 2048, causal) for width in (128, 64) for causal in (False, True)),
)  # fmt: skip


def candidates(case: AttentionWork) -> dict[str, Any]:
    """Configurations by name; the first is the library's choice."""
    if isinstance(case, ForwardProblem):
        chosen = default(subject(case))
        every = replace(chosen, loads_ahead=True, release_late=True, decode_early=True, pdl=True)
        return {"chosen": chosen, "loads ahead": replace(chosen, loads_ahead=True, pdl=True), "all": every}
    chosen = choice(case, EMULATED)
    ahead = replace(chosen, early=True)
    found = {"chosen": chosen, "prefetch 5": replace(ahead, prefetched=5), "prefetch 8": replace(ahead, prefetched=8)}
    if case.narrow:
        return found
    deep = replace(ahead, stages=6, used_rows=4, exchanged=128, together=20)
    two = replace(deep, stages=3, residents=2, value_steps=4)
    return found | {
        "deep, prefetch 6": replace(deep, prefetched=6), "deep, prefetch 9": replace(deep, prefetched=9),
        "few, prefetch 6": replace(deep, stages=2, prefetched=6), "two, prefetch 3": replace(two, prefetched=3),
        "two, prefetch 6": replace(two, prefetched=6), "two, prefetch 10": replace(two, prefetched=10),
    }  # fmt: skip


def compiled(case: AttentionWork, config: Any) -> None:
    """Compile a kernel into the cache."""
    if isinstance(case, ForwardProblem):
        attention.build(subject(case), config).resources()
    else:
        attention_decode.build(decode_subject(case), config).resources()


def calls(case: AttentionWork, sets: Sequence[Any], config: Any) -> list[Callable[[], Any]]:
    """Calls of the library, one for each set of operands."""
    import warploom

    if isinstance(case, ForwardProblem):
        return [
            lambda one=one: warploom.attention(
                one.q, one.k, one.v, causal=case.causal, out=one.out, lse=one.lse, config=config
            )
            for one in sets
        ]
    return [
        lambda one=one: warploom.attention_decode(
            one.q, one.k, one.v, one.lengths, out=one.out, lse=one.lse, config=config
        )
        for one in sets
    ]


def measured(case: AttentionWork, gpu: Any, seconds: float) -> Iterator[dict[str, Any]]:
    """Rows of one case."""
    import torch

    from warploom.lab import attention_operands
    from warploom.lab.attention_contenders import TorchAttention
    from warploom.runtime.benchmark import protocols

    begun = time.perf_counter()
    sets, decodes = attention_operands.make(case), isinstance(case, DecodeProblem)
    ready: dict[str, tuple[Callable[[], object], int]] = {}
    wanted = None
    for name, config in candidates(case).items():
        made = calls(case, sets, config)
        sets[0].clear()
        made[0]()
        torch.cuda.synchronize()
        found = sets[0].out.float()
        wanted = found if wanted is None else wanted
        off = float((found - wanted).norm() / wanted.norm())
        if not off < 4e-3:
            print(f"    {case.name} {name}: wrong, {off}", flush=True)
            continue
        ready[name] = gpu.ready(made, "graph" if decodes else "stream")
        print(f"    {name} {time.perf_counter() - begun:.1f} s", flush=True)
    cudnn = TorchAttention("cudnn")
    if cudnn.missing(case) is None:
        one = [cudnn.call(case, each) for each in sets]
        one[0]()
        ready["cudnn"] = gpu.ready(one, "graph" if decodes else "stream")
    spreads = protocols.sample(
        "interleaved" if decodes else "alone", {name: call for name, (call, _) in ready.items()}, seconds, gpu.timer,
        {name: count for name, (_, count) in ready.items()}, rounds=20,
    )  # fmt: skip
    for name, spread in spreads.items():
        yield {
            "case": case.name, "provider": name, "protocol": "interleaved" if decodes else "alone",
            "us": spread.as_dict(lambda s: s * 1e6, 2), **case.rates(spread.median),
            "config": str(candidates(case).get(name, "")),
        }  # fmt: skip


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--only", choices=("decode", "forward", ""), default="")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no case is begun")
    asked = parser.parse_args(words)
    begun = time.perf_counter()
    cases = [case for case in CASES if asked.only in ("", "forward" if isinstance(case, ForwardProblem) else "decode")]
    each = {(type(case), str(config), getattr(case, "narrow", 0), getattr(case, "head_dim", 0), getattr(case, "causal", 0)):
            (case, config) for case in cases for config in candidates(case).values()}  # fmt: skip
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(compiled, *zip(*each.values(), strict=True)))
    print(f"{len(each)} built in {time.perf_counter() - begun:.0f} s", flush=True)
    import torch

    from warploom.lab import evidence
    from warploom.runtime.benchmark.gpu import Gpu
    from warploom.runtime.benchmark.power import driver_version

    torch.set_grad_enabled(False)
    gpu, rows = Gpu(0, 20.0), []
    head = evidence.header("attention-fields", gpu=gpu.name, driver=driver_version())
    for case in cases:
        if time.perf_counter() - begun > asked.budget:
            print(f"left out: {case.name}", flush=True)
            continue
        found = list(measured(case, gpu, asked.seconds))
        rows += found
        print(case.name, *(f"{row['provider']} {row['us']['median']}" for row in found), sep=" | ", flush=True)
        if asked.out is not None:
            evidence.write(asked.out, head, rows)
        torch.cuda.empty_cache()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
