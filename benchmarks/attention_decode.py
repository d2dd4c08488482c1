"""Time configurations of the decode kernel in CUDA graphs, next to the library's choice, cuDNN and FlashAttention.

    python -m benchmarks.attention_decode [--out FILE] [--only WORDS] [--seconds 0.3] [--budget 400] [--variants]
    python -m benchmarks.attention_decode --candidates --seconds 0.15
    python -m benchmarks.attention_decode --clusters --seconds 0.15

Cases, data, contenders and the correctness check are those of `warploom bench --suite attention-decode`, which times
only the library's choice. --candidates times the cases `SWEPT`, unless --only is given; --clusters times those of
`SHORT` with clusters and without. Kernels are built by several processes before anything is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import get_context

import torch

from benchmarks.attention_session import Row, Session, Suite, Variant, fits
from warploom.errors import ArgumentError, CompilationError, TraceError
from warploom.kernels.hopper import attention_decode as kernels
from warploom.kernels.hopper.attention_decode_config import DecodeConfig
from warploom.lab.attention_contenders import TorchAttention, choice, decode_subject
from warploom.lab.attention_problem import DECODES, DecodeProblem
from warploom.operators.spec.gpu import EMULATED, gpu_of

SWEPT = (
    DecodeProblem(16, 8192), DecodeProblem(1, 65536), DecodeProblem(1, 1024), DecodeProblem(1, 8192),
    DecodeProblem(4, 4096), DecodeProblem(32, 2048), DecodeProblem(16, 8192, page=16), DecodeProblem(16, 8192, page=64),
    DecodeProblem(16, 8192, page=1), DecodeProblem(16, 8192, fp8_kv=True),
    DecodeProblem(64, 8192, page=16, fp8_kv=True),
)  # fmt: skip
"""Cases that distinguish the candidates."""
SHORT = (
    *(DecodeProblem(batch, keys) for batch, keys in (
        (1, 1024), (1, 512), (1, 2048), (1, 4096), (1, 8192), (4, 1024), (2, 1024), (8, 1024), (16, 1024), (4, 2048),
        (2, 4096), (8, 512),
    )),
    *(DecodeProblem(1, keys, heads=16, kv_heads=2) for keys in (1024, 4096)), DecodeProblem(1, 1024, kv_heads=32),
    DecodeProblem(1, 1024, dim=64), DecodeProblem(1, 2048, page=16), DecodeProblem(2, 1024, queries=4),
)  # fmt: skip
"""Cases of few keys, around the edge of where a cluster pays."""


def candidates(case: DecodeProblem) -> dict[str, DecodeConfig]:
    """Candidates for the default, by name; `EXPECTED` has the gain in microseconds that was expected of each."""
    chosen = _chosen(case)
    found = {"constant lengths": replace(chosen, constant_lengths=True)}
    if not case.fp8_kv and case.batch * case.kv_heads <= CLUSTERED:
        few = replace(chosen, copy_rows=min(chosen.copy_rows, 64), exchange_columns=min(128, case.dim))
        for cluster in (4, 8, 16):
            one = replace(few, cluster=cluster, stages=2 if case.length <= 2 * 64 * cluster else 3)
            found |= {f"clusters of {cluster}": one}
            found |= {f"clusters of {cluster}, constant lengths": replace(one, constant_lengths=True)}
    if case.dim > 128:
        return found | {"in one round": replace(chosen, stages=chosen.stages - 1, exchange_columns=128)}
    if case.fp8_kv:
        return found | {"in two rounds": replace(chosen, stages=chosen.stages + 1, exchange_columns=64)}
    small = chosen if chosen.stages <= 3 else replace(chosen, stages=3, exchange_columns=32)
    two = replace(small, ctas_per_sm=2, producer_warps=min(2, small.producer_warps))
    found |= {
        "two residents": two,
        "two residents, constant lengths": replace(two, splits_per_read=8, constant_lengths=True),
        "3 stages": replace(small, stages=3, splits_per_read=8, exchange_columns=32),
        "in one round": replace(chosen, stages=5, splits_per_read=8, exchange_columns=128),
        "few": replace(small, stages=2, splits_per_read=16, exchange_columns=128),
        "few, two residents": replace(two, stages=2, splits_per_read=16, exchange_columns=128),
    }  # fmt: skip
    if chosen.copies > 1:
        found |= {f"{loaders} loaders": replace(chosen, producer_warps=loaders) for loaders in (4, 8)}
    distinct = {config: name for name, config in reversed(found.items()) if config != chosen}
    return {name: config for config, name in reversed(distinct.items())}


CLUSTERED = 64
"""Most key heads of all sequences for which clusters are candidates."""
EXPECTED = {
    "clusters of 8": "1.5 to 2 of 6.2 at 1 x 1024: no length before the first tile (0.5), no write, counter and read in"
    " global memory (1.6) but one st.async (0.5); half of it at 4 x 1024, nothing where a CTA has more than four tiles",
    "clusters of 16": "0.2 less than 8 at 1 x 1024, where each CTA then has one tile",
    "clusters of 4": "0.5 more than 8 at 1 x 1024, where each CTA then has four tiles",
    "clusters of 4, constant lengths": "0.1 less than without: the lengths are not waited for anyway",
    "clusters of 8, constant lengths": "0.1 less than without: the lengths are not waited for anyway",
    "clusters of 16, constant lengths": "0.1 less than without: the lengths are not waited for anyway",
    "constant lengths": "1: lengths are read while the kernel in front ends, and the first tiles are in L2",
    "two residents": "1: the next kernel's CTA has begun when this one ends; 168 registers in the place of 180",
    "two residents, constant lengths": "2 to 3, both together: memory does not rest between two kernels",
    "in one round": "1, where a head is on many CTAs: a thread adds up one item of their parts, not two in turn",
    "in two rounds": "none: a round took 1 us of 66",
    "few": "as for few tiles: where the boundary of `FEW_TOKENS` is",
    "few, two residents": "none: two residents cost 0.1 to 0.7 in six pairs",
    "3 stages": "3 of 133 with pages of 16: fewer copies wait for memory at a time",
    "4 loaders": "none; 8 with pages of 1 gained 127",
    "8 loaders": "100 of 305 with pages of 1, for copies are started one after the other; none with pages of 16",
}
"""Expected gains in microseconds, written before the measurement."""


def clusters(case: DecodeProblem) -> dict[str, DecodeConfig]:
    """The choice without a cluster, and with clusters of several sizes."""
    alone = replace(_chosen(case), cluster=0)
    few = replace(alone, copy_rows=min(alone.copy_rows, 64), exchange_columns=min(128, case.dim))
    found = {"no cluster": alone}
    for cluster in (2, 4, 8):
        stages = 2 if case.length <= 2 * few.tile_n * cluster else 3
        found[f"clusters of {cluster}"] = replace(few, cluster=cluster, stages=stages)
    return found


def _chosen(case: DecodeProblem) -> DecodeConfig:
    config = choice(case, gpu_of(0) if torch.cuda.is_available() else EMULATED)
    assert isinstance(config, DecodeConfig)
    return config


def configurations(case: DecodeProblem, variants: bool, swept: str = "") -> dict[str, DecodeConfig]:
    """Our contenders by name; with `swept`, "candidates" or "clusters", these instead of variants."""
    chosen = _chosen(case)
    if not (variants or swept):
        return {"warploom": chosen}
    if swept:
        others = clusters(case) if swept == "clusters" else candidates(case)
    else:
        others = {"no pdl": replace(chosen, pdl=False), "two stages less": replace(chosen, stages=chosen.stages - 2)}
        if chosen.tile_n > 64:
            others["64 keys"] = replace(chosen, tile_n=64, copy_rows=min(chosen.copy_rows, 64))
    found = {f"warploom {name}": other for name, other in others.items() if other != chosen and builds(case, other)}
    return {"warploom": chosen} | found


@lru_cache(maxsize=512)
def builds(case: DecodeProblem, config: DecodeConfig) -> bool:
    """True if ptxas compiles the configuration without spills; its cubin is then in the cache."""
    try:
        kernels.build(decode_subject(case), config).resources()
    except (ArgumentError, CompilationError, TraceError):  # no such configuration, spills, or no space
        return False
    return True


def build(case: DecodeProblem, variants: bool, swept: str) -> None:
    """Build the kernels of a case into the cache."""
    for config in configurations(case, variants, swept).values():
        builds(case, config)


def measure(case: DecodeProblem, session: Session) -> Iterator[Row]:
    """Measure the rows of one case."""
    asked = configurations(case, session.asked.variants, session.asked.swept)
    ours = [Variant(name, config) for name, config in asked.items()]
    others = [TorchAttention(name) for name in ("cudnn", "flash") if session.asked.swept != "clusters"]
    session.prepare(case, [*ours, *others], launch="graph")
    yield from session.rows(case)


def told(rows: Sequence[Row]) -> str:
    """A summary line of a case."""
    each = ", ".join(f"{row['provider']} {row['us']['median']} us {row['of_ceiling']:.3f}" for row in rows)
    fastest = min(rows, key=lambda row: float(row["us"]["median"]))["provider"]
    return f"{rows[0]['case']:40} {each}  error {rows[0]['relative_error']:.1e}, fastest {fastest}"


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-decode", __doc__, DECODES, fits, measure, told, seconds=0.3)
    parser = suite.parser()
    parser.add_argument("--variants", action="store_true", help="other configurations, too")
    for name, what in (("candidates", "what may become the choice, beside it"), ("clusters", "clusters, few keys")):
        parser.add_argument(f"--{name}", dest="swept", action="store_const", const=name, default="", help=what)
    asked = parser.parse_args(words)
    if asked.swept == "clusters" or (asked.swept and not asked.only):
        suite = replace(suite, cases=SHORT if asked.swept == "clusters" else SWEPT)

    def prepare(cases: Sequence[DecodeProblem]) -> None:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(build, variants=asked.variants, swept=asked.swept), cases))

    return suite.run(asked, prepare)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
