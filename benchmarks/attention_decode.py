"""Configurations of the decoding kernel beside the library's choice, cuDNN and flash, in graphs.

    python -m benchmarks.attention_decode [--out FILE] [--only WORDS] [--seconds 0.3] [--budget 400] [--variants]

The cases, their data, the contenders and what they are held against are those of `warploom bench --suite
attention-decode`, which times the library's choice alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from benchmarks.attention_session import Row, Session, Suite, Variant, fits
from warploom.kernels.hopper.attention_decode_config import DecodeConfig
from warploom.lab.attention_contenders import TorchAttention, choice
from warploom.lab.attention_problem import DECODES, DecodeProblem
from warploom.operators.spec.gpu import EMULATED, gpu_of


def configurations(case: DecodeProblem, variants: bool) -> dict[str, DecodeConfig]:
    """Ours, by the name of the contender."""
    chosen = choice(case, gpu_of(0) if torch.cuda.is_available() else EMULATED)
    if not variants:
        return {"warploom": chosen}
    others = {"no pdl": replace(chosen, pdl=False), "two stages less": replace(chosen, stages=chosen.stages - 2)}
    if chosen.keys > 64:
        others["64 keys"] = replace(chosen, keys=64, copy_rows=min(chosen.copy_rows, 64))
    return {"warploom": chosen} | {f"warploom {name}": other for name, other in others.items()}


def measure(case: DecodeProblem, session: Session) -> Iterator[Row]:
    """The rows of one case."""
    ours = [Variant(name, config) for name, config in configurations(case, session.asked.variants).items()]
    session.prepare(case, [*ours, TorchAttention("cudnn"), TorchAttention("flash")], launch="graph")
    yield from session.rows(case)


def told(rows: Sequence[Row]) -> str:
    """A case in a line."""
    each = ", ".join(f"{row['provider']} {row['us']['median']} us {row['of_ceiling']:.3f}" for row in rows)
    return f"{rows[0]['case']:40} {each}  error {rows[0]['relative_error']:.1e}"


def main(words: Sequence[str]) -> int:
    suite = Suite("attention-decode", __doc__, DECODES, fits, measure, told, seconds=0.3)
    parser = suite.parser()
    parser.add_argument("--variants", action="store_true", help="other configurations, too")
    return suite.run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
