"""Configurations of the decoding kernel beside the library's choice, cuDNN and flash, in graphs.

    python -m benchmarks.attention_decode [--out FILE] [--only WORDS] [--seconds 0.3] [--budget 400] [--variants]
    python -m benchmarks.attention_decode --candidates --seconds 0.15

The cases, their data, the contenders and what they are held against are those of `warploom bench --suite
attention-decode`, which times the library's choice alone. With --candidates `SWEPT` is timed, unless --only says what.
Kernels are built before anything is timed, in several processes.
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
from warploom.errors import CompilationError, TraceError
from warploom.kernels.hopper import attention_decode as kernels
from warploom.kernels.hopper.attention_decode_config import DecodeConfig
from warploom.lab.attention_contenders import TorchAttention, choice, decode_subject
from warploom.lab.attention_problem import DECODES, DecodeProblem
from warploom.operators.spec.gpu import EMULATED, gpu_of

SWEPT = (
    DecodeProblem(16, 8192), DecodeProblem(1, 65536), DecodeProblem(1, 1024), DecodeProblem(1, 8192),
    DecodeProblem(32, 2048), DecodeProblem(16, 8192, page=16), DecodeProblem(16, 8192, page=64),
    DecodeProblem(16, 8192, page=1), DecodeProblem(16, 8192, narrow=True),
    DecodeProblem(64, 8192, page=16, narrow=True),
)  # fmt: skip
"""Cases that tell the candidates apart."""
SMS = 132
"""Of an H200."""
FEW_TILES = 16
"""Of a CTA: where it has no more, starting and meeting take as long as reading."""


def candidates(case: DecodeProblem) -> dict[str, DecodeConfig]:
    """What may become the choice, by name: where a step's time goes says which."""
    chosen = _chosen(case)
    early = replace(chosen, early=True)
    found = {"early": early, "early, together 32": replace(early, together=32)}
    if case.page:
        found |= {"ahead": replace(chosen, ahead=True), "early, ahead": replace(early, ahead=True)}
        for loaders in (2, 4):
            found[f"early, ahead, {loaders} loaders"] = replace(early, ahead=True, loaders=loaders)
    else:
        found["early, 2 loaders"] = replace(early, loaders=2)
    if case.dim <= 128 and not case.narrow:  # as many tiles on their way as leave room for the next kernel's CTA
        found["early, 3 stages, exchanged 32"] = replace(early, stages=3, exchanged=32, ahead=bool(case.page))
    tiles = sum(-(-length // chosen.keys) for length in case.lengths) * case.kv_heads
    if tiles <= FEW_TILES * SMS:  # two CTAs on a multiprocessor: the next kernel's begin under this one's end
        small = replace(early, stages=2, together=16)
        found |= {"early, 2 stages": small, "early, 2 stages, exchanged 128": replace(small, exchanged=128)}
        found |= {f"early, 2 stages, several {n}": replace(small, several=n) for n in (2, 4) if tiles < n * SMS}
    return found


def _chosen(case: DecodeProblem) -> DecodeConfig:
    config = choice(case, gpu_of(0) if torch.cuda.is_available() else EMULATED)
    assert isinstance(config, DecodeConfig)
    return config


def configurations(case: DecodeProblem, variants: bool, swept: bool = False) -> dict[str, DecodeConfig]:
    """Ours, by the name of the contender; others in place of the variants where candidates are `swept`."""
    chosen = _chosen(case)
    if not (variants or swept):
        return {"warploom": chosen}
    if swept:
        others = candidates(case)
    else:
        others = {"no pdl": replace(chosen, pdl=False), "two stages less": replace(chosen, stages=chosen.stages - 2)}
        if chosen.keys > 64:
            others["64 keys"] = replace(chosen, keys=64, copy_rows=min(chosen.copy_rows, 64))
    found = {f"warploom {name}": other for name, other in others.items() if other != chosen and builds(case, other)}
    return {"warploom": chosen} | found


@lru_cache(maxsize=512)
def builds(case: DecodeProblem, config: DecodeConfig) -> bool:
    """Whether ptxas makes a kernel without spills of it; it is in the cache then."""
    try:
        kernels.build(decode_subject(case), config).resources()
    except (CompilationError, TraceError):  # spills, or no room
        return False
    return True


def build(case: DecodeProblem, variants: bool, swept: bool) -> None:
    """Put the kernels of a case into the cache."""
    for config in configurations(case, variants, swept).values():
        builds(case, config)


def measure(case: DecodeProblem, session: Session) -> Iterator[Row]:
    """The rows of one case."""
    asked = configurations(case, session.asked.variants, session.asked.candidates)
    ours = [Variant(name, config) for name, config in asked.items()]
    session.prepare(case, [*ours, TorchAttention("cudnn"), TorchAttention("flash")], launch="graph")
    yield from session.rows(case)


def told(rows: Sequence[Row]) -> str:
    """A case in a line."""
    each = ", ".join(f"{row['provider']} {row['us']['median']} us {row['of_ceiling']:.3f}" for row in rows)
    fastest = min(rows, key=lambda row: float(row["us"]["median"]))["provider"]
    return f"{rows[0]['case']:40} {each}  error {rows[0]['relative_error']:.1e}, fastest {fastest}"


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-decode", __doc__, DECODES, fits, measure, told, seconds=0.3)
    parser = suite.parser()
    parser.add_argument("--variants", action="store_true", help="other configurations, too")
    parser.add_argument("--candidates", action="store_true", help="what may become the choice, beside it")
    asked = parser.parse_args(words)
    if asked.candidates and not asked.only:
        suite = replace(suite, cases=SWEPT)

    def prepare(cases: Sequence[DecodeProblem]) -> None:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(build, variants=asked.variants, swept=asked.candidates), cases))

    return suite.run(asked, prepare)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
