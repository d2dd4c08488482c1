"""Which configuration of its kernel an attention runs: what was timed on this GPU before, else the rule of the kernel.

`tune` times `candidates` and keeps the fastest in the same file as `matmul`'s choices, under `Call.describe`: for one
set of sizes, one GPU, one driver and one version of the package. Functions of scores, block masks, windows and
sequences of different lengths go by the rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ...errors import ArgumentError
from ...isa.dtypes import DType
from ...kernels.hopper.attention_config import (
    REGISTERS,
    RESERVE_BYTES,
    Attention,
    Config,
    default,
)
from ...kernels.hopper.attention_decode_config import (
    DECODE_RESERVE_BYTES,
    Decode,
    DecodeConfig,
    decode_config,
)
from ...kernels.hopper.description import SHARED_BYTES
from ...settings import config as settings
from ..spec.gpu import EMULATED, Gpu
from ..tuned import tables
from .request import Asked

SPARE_REGISTERS = 24
"""Of a consumer's registers what its accumulators leave for everything else, at least."""
STEP = 16
"""Keys by which the tiles of candidates differ: k of a product of 16 bits; of eight bits twice as many."""
FLAGS = ("above", "below", "softcap", "sinks", "scaled", "paged", "narrow")
"""What else of a kernel's subject is in its name."""


@dataclass(frozen=True)
class Call:
    """The sizes of an attention, and what its kernel is for.

    Attributes:
        of: `Attention`, or `Decode` of a step of decoding.
        page: keys of a page, of a cache in pages.
    """

    of: Attention | Decode
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    page: int = 0

    @property
    def flops(self) -> int:
        """Of both products, masked scores left out where the last query sees all keys."""
        n, t = self.queries, self.keys
        causal = isinstance(self.of, Attention) and self.of.above
        seen = sum(max(0, min(t, t - n + i + 1)) for i in range(n)) if causal else n * t
        return 2 * self.batch * self.heads * seen * (self.of.head_dim + self.of.value_dim)

    @property
    def rows(self) -> int:
        """Rows that share a key head, of decoding."""
        return self.queries * (self.heads // max(1, self.kv_heads))

    def describe(self) -> str:
        """Everything that a choice depends on."""
        of = self.of
        name = "attention" if isinstance(of, Attention) else "attention_decode"
        widths = f"{of.head_dim}" if of.head_dim == of.value_dim else f"{of.head_dim}/{of.value_dim}"
        flags = [flag for flag in FLAGS if getattr(of, flag, False)]
        words = [f"{name} {of.dtype}", f"{self.batch}x{self.heads}x{self.queries}x{widths}",
                 f"{self.keys} keys of {self.kv_heads} heads", *flags]  # fmt: skip
        return ", ".join(words + ([f"pages of {self.page}"] if self.page else []))

    def rule(self, sms: int = EMULATED.sms) -> Any:
        """The configuration of the kernel's own rule."""
        if isinstance(self.of, Attention):
            return default(self.of)
        tokens = self.batch * self.kv_heads * self.keys // sms
        return decode_config(self.of, self.rows, self.page or None, tokens)


@dataclass(frozen=True)
class Chosen:
    """A configuration, and why: "tuned" or "rule"."""

    config: Any
    source: str


def chosen(call: Call, gpu: Gpu) -> Chosen:
    """The configuration for a call on a GPU."""
    folder = settings.cache_dir
    return _chosen(call, gpu, str(folder) if folder else "", tables().version)


@lru_cache(maxsize=4096)
def _chosen(call: Call, gpu: Gpu, folder: str, version: int) -> Chosen:
    found = tables().tuned(gpu, folder).get(call.describe())
    return Chosen(call.rule(gpu.sms), "rule") if found is None or not fits(found, call) else Chosen(found, "tuned")


def fits(config: Any, call: Call) -> bool:
    """Whether a kernel of this configuration can be built, as far as its memory and registers say."""
    of = call.of
    if isinstance(of, Attention):
        if not isinstance(config, Config) or config.consumers not in REGISTERS:
            return False
        few = config.accumulators(of) + SPARE_REGISTERS <= REGISTERS[config.consumers][1]
        step = 2 * STEP // of.dtype.bytes
        return few and config.keys % step == 0 and config.shared_bytes(of) <= SHARED_BYTES - RESERVE_BYTES
    if not isinstance(config, DecodeConfig):
        return False
    try:
        config.check(call.page or None, of)
    except ArgumentError:
        return False
    return config.stages > 1 and config.shared_bytes(of) <= SHARED_BYTES - DECODE_RESERVE_BYTES


def candidates(call: Call) -> list[Any]:
    """Configurations that are worth timing, the rule's first and those that differ least from it next."""
    first = call.rule()
    found = _neighbours(first, call.of.dtype) if isinstance(first, Config) else _decoding(first, call.page)
    return [first, *(config for config in dict.fromkeys(found) if config != first and fits(config, call))]


def _neighbours(first: Config, dtype: DType) -> list[Config]:
    step = 2 * STEP // dtype.bytes
    found = [replace(first, ordered=not first.ordered), replace(first, guarded=not first.guarded)]
    found.append(replace(first, query_slots=3 - first.query_slots))
    for consumers in (first.consumers, 5 - first.consumers):
        for difference in (0, -1, 1, -2, 2, -3, 3):
            keys = first.keys + difference * step
            for stages in ((first.key_stages, first.value_stages), (2, 2), (3, 2), (4, 4)):
                if keys >= 2 * step:
                    found.append(replace(first, consumers=consumers, keys=keys, key_stages=stages[0],
                                         value_stages=stages[1]))  # fmt: skip
    return found


def _decoding(first: DecodeConfig, page: int) -> list[DecodeConfig]:
    early = replace(first, early=True, together=16)
    found = [early, replace(early, stages=2), replace(early, stages=2, several=2)]
    if page:
        found += [replace(early, ahead=True), *(replace(early, ahead=True, loaders=loaders) for loaders in (2, 4))]
    found += [replace(first, pdl=not first.pdl), replace(first, stages=first.stages - 1)]
    found += [replace(first, stages=first.stages - 2), replace(first, value_steps=max(2, first.value_steps // 2))]
    for keys in (64, 128):
        rows = keys if first.copy_rows == first.keys else first.copy_rows
        found += [replace(first, keys=keys, copy_rows=rows, stages=stages) for stages in (2, 3, 4, 6, 8, 12)]
    return found


def call_of(request: Asked, *, page: int = 0, room: int = 0) -> Call:
    """The call of a request; room: keys that each sequence of a cache has room for."""
    batch, queries, heads, _ = request.views["q"].shape
    of = request.of
    assert isinstance(of, (Attention, Decode))
    return Call(of, batch, heads, request.views["k"].shape[2], queries, room or request.keys, page)


def plain(of: Attention) -> bool:
    """Whether a choice for its sizes can be kept: nothing is in its text that they do not tell."""
    return not (of.varlen or of.lists or of.below or of.score_mod is not None or of.mask_mod is not None)
