"""Time fields of the decode kernel's configuration, beside the library's choice and cuDNN, with little preparation.

    python -m benchmarks.attention_fields [--out FILE] [--seconds 0.5] [--budget 100]

Results are compared with those of the first candidate; `benchmarks.attention_decode` compares with float64. Steps are
timed as graphs, in random slices.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from warploom.kernels.hopper import attention_decode
from warploom.kernels.hopper.attention_decode_config import DecodeConfig
from warploom.lab.attention_contenders import TorchAttention, choice, decode_subject
from warploom.lab.attention_problem import DecodeProblem
from warploom.operators.spec.gpu import EMULATED

CASES = (
    DecodeProblem(16, 8192), DecodeProblem(1, 65536), DecodeProblem(16, 8192, page=16), DecodeProblem(64, 8192),
    DecodeProblem(32, 2048), DecodeProblem(16, 8192, heads=64), DecodeProblem(4, 4096), DecodeProblem(1, 8192),
    DecodeProblem(16, 8192, page=64), DecodeProblem(16, 8192, fp8_kv=True), DecodeProblem(64, 8192, ragged=True),
    DecodeProblem(128, 1024), DecodeProblem(16, 8192, dim=64),
)  # fmt: skip


def candidates(case: DecodeProblem) -> dict[str, DecodeConfig]:
    """The library's choice and configurations that differ from it in a field or two."""
    chosen = choice(case, EMULATED)
    found = {"chosen": chosen, "other shares": replace(chosen, head_aligned=not chosen.head_aligned)}
    if case.page:
        return found | {"prefetch none": replace(chosen, prefetch=0)}
    return found | {"prefetch more": replace(chosen, prefetch=chosen.prefetch + 3)}


def compiled(case: DecodeProblem, config: DecodeConfig) -> None:
    """Compile a kernel into the cache."""
    attention_decode.build(decode_subject(case), config).resources()


def measured(case: DecodeProblem, gpu: Any, seconds: float) -> Iterator[dict[str, Any]]:
    """Rows of one case."""
    import torch

    import warploom
    from warploom.lab import attention_operands
    from warploom.runtime.benchmark import protocols

    sets, wanted = attention_operands.make(case), None
    ready: dict[str, tuple[Callable[[], object], int]] = {}
    for name, config in candidates(case).items():
        calls = [
            partial(
                warploom.attention_decode, one.q, one.k, one.v, one.lengths, out=one.out, lse=one.lse, config=config
            )
            for one in sets
        ]
        sets[0].clear()
        calls[0]()
        torch.cuda.synchronize()
        found = sets[0].out.float()
        wanted = found if wanted is None else wanted
        off = float((found - wanted).norm() / wanted.norm())
        if off < 4e-3:
            ready[name] = gpu.ready(calls, "graph")
        else:
            print(f"    {case.name} {name}: wrong, {off}", flush=True)
    cudnn = TorchAttention("cudnn")
    if cudnn.missing(case) is None:
        ready["cudnn"] = gpu.ready([cudnn.call(case, each) for each in sets], "graph")
    calls_, counts = ({name: each[at] for name, each in ready.items()} for at in (0, 1))
    spreads = protocols.sample("interleaved", calls_, seconds, gpu.timer, counts, rounds=20)  # type: ignore[arg-type]
    for name, spread in spreads.items():
        yield {
            "case": case.name, "provider": name, "protocol": "interleaved",
            "us": spread.as_dict(lambda s: s * 1e6, 2), **case.rates(spread.median),
            "config": str(candidates(case).get(name, "")),
        }  # fmt: skip


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no case is begun")
    asked = parser.parse_args(words)
    begun = time.perf_counter()
    each = {(decode_subject(case), config): (case, config) for case in CASES for config in candidates(case).values()}
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(compiled, *zip(*each.values(), strict=True)))
    print(f"{len(each)} built in {time.perf_counter() - begun:.0f} s", flush=True)
    import torch

    from warploom.lab import evidence
    from warploom.runtime.benchmark.gpu import Gpu
    from warploom.runtime.benchmark.power import driver_version

    torch.set_grad_enabled(False)
    evidence.check_place(asked.out)
    gpu, rows = Gpu(0, 20.0), []
    head = evidence.header("attention-fields", gpu=gpu.name, driver=driver_version())
    for case in CASES:
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
