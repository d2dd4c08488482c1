"""Attention as a problem to be timed: a forward pass, or a decoding step. Data only; nothing needs a GPU."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..errors import ArgumentError
from ..isa import dtypes
from ..plural import counted

FORWARD, DECODE = "attention", "attention-decode"
"""Kinds of problems, for contenders to declare."""
TOKENS, WIDTH = 16384, 2048
"""Queries of all sequences together, and columns of all heads together, by default."""
CEILING_TBS = 4.71
"""Read ceiling of an H200, which the other evidence of that GPU also uses."""
SHAPE = "BxHxSxD or BxHxSxDxG, as in 4x16x4096x128"


@dataclass(frozen=True)
class ForwardProblem:
    """softmax(scale Q Kᵀ + mask) V of sequences of one length, (B, H, S, D).

    Attributes:
        head_dim, length, causal: as in their names; `value_dim` if it differs.
        dtype: "bf16", "f16" or "e4m3", with a scale for each head.
        group: query heads for each key head.
        data: "normal", or one of `ANY_DATA`.
        window: keys before and after its own position that a query sees.
        batch, heads: 0: as many as make `TOKENS` queries and `WIDTH` columns.
    """

    head_dim: int = 128
    length: int = 4096
    causal: bool = False
    dtype: str = "bf16"
    value_dim: int = 0
    group: int = 1
    data: str = "normal"
    window: tuple[int, int] | None = None
    batch: int = 0
    heads: int = 0

    kind = FORWARD

    @property
    def name(self) -> str:
        """Its name in evidence: head dimension, length, mask, type, and what else distinguishes it."""
        words = [f"{self.head_dim}" + (f"/{self.value_dim}" if self.value_dim else ""), f"{self.length}",
                 "causal" if self.causal else "full", self.dtype]  # fmt: skip
        words += [f"group {self.group}"] if self.group > 1 else []
        words += [f"window {self.window}"] if self.window else []
        words += [f"of {self.batch} x {counted(self.heads, 'head')}"] if self.batch or self.heads else []
        return " ".join(words + ([self.data] if self.data != "normal" else []))

    @property
    def shape(self) -> str:
        return self.name

    @property
    def scales(self) -> str:
        """A factor for each head, for eight bits."""
        return "head" if self.dtype == "e4m3" else ""

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """B, H, S, D."""
        batch, heads = self.batch or max(1, TOKENS // self.length), self.heads or max(1, WIDTH // self.head_dim)
        return batch, heads, self.length, self.head_dim

    @property
    def columns(self) -> int:
        """Number of columns of V and O."""
        return self.value_dim or self.head_dim

    @property
    def seen(self) -> int:
        """Unmasked scores of a head."""
        n = self.length
        left, right = self.window or (n, n)
        right = 0 if self.causal else right
        return sum(min(n, i + right + 1) - max(0, i - left) for i in range(n))

    @property
    def flops(self) -> int:
        """2 (D + E) for each unmasked score."""
        batch, heads, _, width = self.sizes
        return 2 * batch * heads * self.seen * (width + self.columns)

    @property
    def bytes(self) -> int:
        """Bytes of Q, K, V and O, each once."""
        batch, heads, length, width = self.sizes
        of_keys = heads // self.group * (width + self.columns)
        out = dtypes.of("bf16" if self.dtype == "e4m3" else self.dtype).bytes
        return batch * length * ((heads * width + of_keys) * dtypes.of(self.dtype).bytes + heads * self.columns * out)

    @property
    def wide(self) -> ForwardProblem:
        """The same in bf16."""
        return replace(self, dtype="bf16")

    def rates(self, seconds: float) -> dict[str, Any]:
        """None: a row has the FLOP of every problem already."""
        return {}

    def as_dict(self) -> dict[str, Any]:
        """Its entries in an evidence row."""
        return {
            "case": self.name, "kind": self.kind, "head_dim": self.head_dim, "length": self.length,
            "causal": self.causal, "dtype": self.dtype, "data": self.data, "flops": self.flops, "bytes": self.bytes,
        }  # fmt: skip


@dataclass(frozen=True)
class DecodeProblem:
    """`batch` sequences of `length` keys, `queries` tokens of `heads` on `kv_heads` in bf16.

    Attributes:
        page: keys of a page; 0: the cache is contiguous.
        ragged: lengths differ, from a sixteenth of `length` up to it.
        fp8_kv: the cache is e4m3.
    """

    batch: int
    length: int
    queries: int = 1
    heads: int = 32
    kv_heads: int = 8
    dim: int = 128
    page: int = 0
    ragged: bool = False
    fp8_kv: bool = False

    kind, dtype, scales = DECODE, "bf16", ""

    @property
    def name(self) -> str:
        """Its name in evidence."""
        words = [f"{self.batch} x {self.length}", f"{self.heads}/{self.kv_heads} heads of {self.dim}"]
        words += [f"{self.queries} tokens"] if self.queries > 1 else []
        words += [f"page {self.page}"] if self.page else []
        return " ".join(words + (["ragged"] if self.ragged else []) + (["e4m3"] if self.fp8_kv else []))

    @property
    def shape(self) -> str:
        return self.name

    @property
    def lengths(self) -> list[int]:
        """Keys of each sequence."""
        if not self.ragged:
            return [self.length] * self.batch
        return [max(1, self.length * (1 + index * 7 % 16) // 16) for index in range(self.batch)]

    @property
    def flops(self) -> int:
        """FLOP of both products; the last keys that a token does not see are counted."""
        return 4 * sum(self.lengths) * self.queries * self.heads * self.dim

    @property
    def bytes(self) -> int:
        """Bytes of K and V that are read, each once."""
        return sum(self.lengths) * self.kv_heads * self.dim * 2 * (1 if self.fp8_kv else 2)

    def rates(self, seconds: float) -> dict[str, Any]:
        """Terabytes of K and V per second, and their share of the read ceiling of an H200."""
        tbs = self.bytes / seconds / 1e12
        return {"tb_per_s": round(tbs, 3), "of_ceiling": round(tbs / CEILING_TBS, 4)}

    def as_dict(self) -> dict[str, Any]:
        """Its entries in an evidence row."""
        return {
            "case": self.name, "kind": self.kind, "batch": self.batch, "length": self.length, "page": self.page,
            "dtype": self.dtype, "flops": self.flops, "bytes": self.bytes,
        }  # fmt: skip


AttentionWork = ForwardProblem | DecodeProblem


def parse(text: str, like: AttentionWork) -> tuple[AttentionWork, ...]:
    """Problems for "4x16x4096x128,2x32x8192x128x8": B, H, S (keys, if tokens are decoded), D, key heads; otherwise like
    another one. Raises ArgumentError for any other text."""
    return tuple(_parsed(word.strip(), like) for word in text.split(","))


def _parsed(word: str, like: AttentionWork) -> AttentionWork:
    sizes = [int(size) if size.isdecimal() else 0 for size in word.lower().split("x")]
    if len(sizes) not in (4, 5) or min(sizes) < 1:
        raise ArgumentError("this is not a shape of attention", expected=SHAPE, got=word)
    batch, heads, length, dim = sizes[:4]
    default = heads if isinstance(like, ForwardProblem) or heads % 4 else heads // 4
    kv_heads = sizes[4] if len(sizes) == 5 else default
    if heads % kv_heads:
        raise ArgumentError(
            "the query heads are not a multiple of the key heads", expected=f"a divisor of {heads}", got=word
        )
    if isinstance(like, ForwardProblem):
        return replace(like, batch=batch, heads=heads, length=length, head_dim=dim, group=heads // kv_heads)
    return replace(like, batch=batch, heads=heads, length=length, dim=dim, kv_heads=kv_heads)


# -- suites ----------------------------------------------------------------------------------------------------------


HEADLINE = tuple(
    ForwardProblem(d, n, causal) for d in (128, 64, 256) for causal in (False, True) for n in (2048, 4096, 16384)
)
OTHERS = (
    *(ForwardProblem(128, 4096, causal, "f16") for causal in (False, True)),
    *(ForwardProblem(96, 4096, causal) for causal in (False, True)),
    *(ForwardProblem(192, 4096, causal, value_dim=128) for causal in (False, True)),
    *(ForwardProblem(128, 4096, causal, group=4) for causal in (False, True)),
    ForwardProblem(128, 16384, True, window=(1024, 0)),
)  # fmt: skip
EIGHT_BITS = (
    *(ForwardProblem(128, n, causal, "e4m3") for n in (2048, 4096, 16384) for causal in (False, True)),
    *(ForwardProblem(d, 4096, causal, "e4m3") for d in (64, 256) for causal in (False, True)),
)  # fmt: skip
ANY_DATA = (
    "deviation 16", "deviation 64", "keys growing 100-fold", "keys growing 1000-fold", "keys shrinking 1000-fold",
    "sink at key 0", "strong sink at key 0", "outlier channels",
)  # fmt: skip
"""Scores that may be difficult for a softmax; `attention_operands.DATA` makes them."""
FORWARDS = (
    *HEADLINE, *OTHERS,
    *(ForwardProblem(128, 4096, causal, data=data) for data in ANY_DATA for causal in (False, True)), *EIGHT_BITS,
)  # fmt: skip
DECODES = (
    DecodeProblem(16, 8192), DecodeProblem(64, 8192), DecodeProblem(1, 65536), DecodeProblem(1, 1024),
    DecodeProblem(1, 8192), DecodeProblem(4, 4096), DecodeProblem(32, 2048), DecodeProblem(128, 1024),
    DecodeProblem(16, 8192, heads=64), DecodeProblem(64, 8192, heads=64), DecodeProblem(16, 8192, heads=8),
    DecodeProblem(16, 8192, queries=4), DecodeProblem(16, 8192, dim=64),
    DecodeProblem(16, 8192, dim=256, heads=16, kv_heads=4),
    DecodeProblem(64, 8192, ragged=True), DecodeProblem(16, 8192, page=16), DecodeProblem(64, 8192, page=16),
    DecodeProblem(16, 8192, page=64), DecodeProblem(16, 8192, page=128), DecodeProblem(16, 8192, page=256),
    DecodeProblem(16, 8192, page=1), DecodeProblem(64, 8192, page=16, ragged=True),
    DecodeProblem(16, 8192, fp8_kv=True), DecodeProblem(64, 8192, page=16, fp8_kv=True),
)  # fmt: skip
