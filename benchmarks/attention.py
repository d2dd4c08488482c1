"""Time configurations of the attention kernel next to the library's choice, cuDNN and FlashAttention.

    python -m benchmarks.attention [--out FILE] [--only WORDS] [--seconds 0.5] [--variants] [--protocols alone,…]
                                   [--peers cudnn,flash,…]
    python -m benchmarks.attention --candidates --seconds 0.12 --protocols alone --budget 140

Cases, data, contenders and the correctness check are those of `warploom bench --suite attention`, which times only the
library's choice. --candidates times the cases `SWEPT`, unless --only is given. All kernels are built by several
processes before anything is timed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from multiprocessing import get_context

from benchmarks.attention_session import Row, Session, Suite, Variant, fits
from warploom.errors import CompilationError, TraceError
from warploom.kernels.hopper import attention as kernels
from warploom.kernels.hopper.attention_config import Attention, Config, default
from warploom.lab.attention_contenders import TorchAttention, WarploomBf16, subject
from warploom.lab.attention_problem import FORWARDS, HEADLINE, ForwardProblem
from warploom.lab.contenders import TritonAttention
from warploom.lang import Kernel

SWEPT = tuple(ForwardProblem(width, 4096, causal, "e4m3") for width in (128, 64, 256) for causal in (False, True))
"""Cases that distinguish the candidates."""


def candidates(case: ForwardProblem) -> dict[str, Config]:
    """Candidates for the default, by name: in e4m3, `promoted_columns` and the tile sizes that fit with it."""
    chosen = default(subject(case))
    if case.dtype != "e4m3":
        return {}
    turns = "unordered" if chosen.ping_pong else "ordered"
    found = {turns: replace(chosen, ping_pong=not chosen.ping_pong)}
    found["maxima not renewed"] = replace(chosen, raise_all_maxima=False)
    if case.head_dim == 256:
        found["apart 64"] = replace(chosen, promoted_columns=64)
        return found | {"never apart": replace(chosen, promoted_columns=0)}
    last = replace(chosen, pv_first=False)
    found["never apart"] = replace(last, tile_n=128, key_stages=3, promoted_columns=0)
    if case.head_dim == 128:
        found["values last, 96 keys"] = replace(last, tile_n=96, key_stages=4)
        found["apart 64, 128 keys"] = replace(last, tile_n=128, key_stages=3, promoted_columns=64)
        found["64 keys"] = replace(chosen, tile_n=64, key_stages=4, value_stages=4)
        found["64 keys, 3 consumers"] = replace(last, tile_n=64, consumers=3, promoted_columns=32)
    if case.head_dim == 64:
        found["values first"] = replace(chosen, pv_first=True)
        found["160 keys"] = replace(chosen, tile_n=160, key_stages=3)
        found["192 keys"] = replace(chosen, tile_n=192, key_stages=3, value_stages=2)
        found["96 keys"] = replace(chosen, tile_n=96)
        found["64 keys, 3 consumers"] = replace(chosen, tile_n=64, consumers=3, promoted_columns=64)
    return found


def configurations(case: ForwardProblem, variants: bool, swept: bool = False) -> dict[str, Config]:
    """Our contenders by name; with `swept`, candidates instead of variants."""
    chosen = default(subject(case))
    turns = "unordered" if chosen.ping_pong else "ordered"
    if not (variants or swept):
        return {"warploom": chosen}
    if swept:
        others = candidates(case)
    elif case.dtype == "e4m3":
        others = {
            "exact": replace(chosen, guarded=False), turns: replace(chosen, ping_pong=not chosen.ping_pong),
            **({"96 keys": replace(chosen, tile_n=96), "64 keys": replace(chosen, tile_n=64)}
               if case.head_dim < 256 else {"apart 64": replace(chosen, promoted_columns=64)}),
        }  # fmt: skip
    else:
        others = {
            "exact": replace(chosen, guarded=False),
            turns: replace(chosen, ping_pong=not chosen.ping_pong),
            "maxima not renewed": replace(chosen, raise_all_maxima=False),
            **({"one slot": replace(chosen, query_stages=1)} if case.head_dim == 128 else {}),
            **({"3 x 96": Config(tile_n=96, consumers=3, key_stages=4, value_stages=4),
                "3 x 80": Config(tile_n=80, consumers=3, key_stages=4, value_stages=4),
                "2 x 128": Config(tile_n=128, key_stages=4, value_stages=4),
                "2 x 176": Config(tile_n=176, key_stages=2, value_stages=2)} if case.head_dim == 64 else {}),
            **({"80 keys": replace(chosen, tile_n=80)} if case.head_dim == 256 else {}),
        }  # fmt: skip
    found = {f"warploom {name}": other for name, other in others.items() if other != chosen and builds(case, other)}
    return {"warploom": chosen} | found


@lru_cache(maxsize=64)
def built(of: Attention, config: Config) -> Kernel:
    """A kernel, traced once."""
    return kernels.build(of, config)


def builds(case: ForwardProblem, config: Config) -> bool:
    """True if ptxas compiles the configuration without spills; its cubin is then in the cache."""
    try:
        built(subject(case), config).resources()
    except (CompilationError, TraceError):  # spills, or no room
        return False
    return True


def build(case: ForwardProblem, variants: bool, swept: bool = False) -> None:
    """Build the kernels of a case into the cache."""
    for config in configurations(case, variants, swept).values():
        builds(case, config)
    if case.dtype == "e4m3":
        builds(case.wide, default(subject(case.wide)))


def measure(case: ForwardProblem, session: Session) -> Iterator[Row]:
    """Measure the rows of one case."""
    ours = [Variant(name, config) for name, config in _asked_for(case, session).items()]
    peers = [TorchAttention("cudnn"), TorchAttention("flash"), TritonAttention(), WarploomBf16()]
    wanted = session.asked.peers.split(",") if session.asked.peers else [peer.name for peer in peers]
    session.prepare(case, [*ours, *(peer for peer in peers if peer.name in wanted)])
    which = session.asked.protocols.split(",")
    for protocol in which if case in HEADLINE else which[:1]:
        yield from session.rows(case, protocol)


def _asked_for(case: ForwardProblem, session: Session) -> dict[str, Config]:
    return configurations(case, session.asked.variants, session.asked.candidates)


def told(rows: Sequence[Row]) -> str:
    """A summary line of a case for each protocol."""
    lines = []
    for protocol in dict.fromkeys(row["protocol"] for row in rows):
        some = [row for row in rows if row["protocol"] == protocol]
        words = []
        for row in some:
            ratio = ", ".join(f"{value:.3f}" for value in row["ratio_to"].values())
            words.append(f"{row['provider']} {row['tflops']['median']:.0f} ({ratio})")
        theirs = min((row["relative_error"] for row in some if row["provider"] == "cudnn"), default=0.0)
        off = f"err {some[0]['relative_error']:.2e} ({theirs:.2e}) lse {some[0].get('lse_error', 0):.0e}"
        lines.append(f"{some[0]['case']:34} {protocol[:5]} {', '.join(words)}  {off}")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    suite = Suite("attention", __doc__, FORWARDS, fits, measure, told)
    parser = suite.parser()
    parser.add_argument("--variants", action="store_true", help="other configurations, too")
    parser.add_argument("--protocols", default="alone,interleaved")
    parser.add_argument("--peers", default="", help="those that are timed beside it; default: all")
    parser.add_argument("--candidates", action="store_true", help="what may become the choice, beside it")
    asked = parser.parse_args(words)
    if asked.candidates and not asked.only:
        suite = replace(suite, cases=SWEPT)

    def prepare(cases: Sequence[ForwardProblem]) -> None:
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            list(pool.map(partial(build, variants=asked.variants, swept=asked.candidates), cases))

    return suite.run(asked, prepare)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
