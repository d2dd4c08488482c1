"""Choice of an attention kernel's configuration: the one tuned on this GPU, else the kernel's rule.

`tune` times `candidates` and keeps the fastest in the same file as `matmul`'s choices, under `Call.describe`: for one
set of sizes, one GPU, one driver and one version of the package. Score functions, block masks, windows and sequences of
different lengths use the rule.
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
    clustered,
    decode_config,
)
from ...kernels.hopper.description import SHARED_BYTES
from ...plural import counted
from ...settings import config as settings
from ..spec.gpu import EMULATED, Gpu
from ..tuned import tables
from .request import CheckedCall

SPARE_REGISTERS = 24
"""Least number of a consumer's registers beyond its accumulators."""
STEP = 16
"""Step in keys between candidate tiles: k of a 16-bit product; twice as many in e4m3."""
FLAGS = ("window_right", "window_left", "softcap", "sinks", "scaled", "paged", "fp8_kv", "fast_accumulation")
"""Flags of a kernel's subject that are part of its name."""


@dataclass(frozen=True)
class Call:
    """The sizes of an attention call, and the subject of its kernel.

    Attributes:
        of: `Attention`, or `Decode` for a decoding step.
        page: keys per page of a paged cache.
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
        """FLOP of both products, without scores masked by `causal`."""
        n, t = self.queries, self.keys
        causal = isinstance(self.of, Attention) and self.of.window_right
        seen = sum(max(0, min(t, t - n + i + 1)) for i in range(n)) if causal else n * t
        return 2 * self.batch * self.heads * seen * (self.of.head_dim + self.of.value_dim)

    @property
    def rows(self) -> int:
        """Rows that share a key head, for decoding."""
        return self.queries * (self.heads // max(1, self.kv_heads))

    def describe(self) -> str:
        """Return a text with everything that a choice depends on."""
        of = self.of
        name = "attention" if isinstance(of, Attention) else "attention_decode"
        widths = f"{of.head_dim}" if of.head_dim == of.value_dim else f"{of.head_dim}/{of.value_dim}"
        flags = [flag for flag in FLAGS if getattr(of, flag, False)]
        words = [f"{name} {of.dtype}", f"{self.batch}x{self.heads}x{self.queries}x{widths}",
                 f"{counted(self.keys, 'key')} of {counted(self.kv_heads, 'head')}", *flags]  # fmt: skip
        return ", ".join(words + ([f"pages of {self.page}"] if self.page else []))

    def rule(self, sms: int = EMULATED.sms) -> Any:
        """Return the configuration of the kernel's own rule."""
        if isinstance(self.of, Attention):
            return default(self.of)
        tokens = self.batch * self.kv_heads * self.keys // sms
        config = decode_config(self.of, self.rows, self.page or None, tokens)
        return clustered(self.of, config, self.batch * self.kv_heads, self.keys, sms)


@dataclass(frozen=True)
class Chosen:
    """A configuration and its source: "tuned" or "rule"."""

    config: Any
    source: str


def chosen(call: Call, gpu: Gpu) -> Chosen:
    """Return the configuration for a call on a GPU."""
    folder = settings.cache_dir
    return _chosen(call, gpu, str(folder) if folder else "", tables().version)


@lru_cache(maxsize=4096)
def _chosen(call: Call, gpu: Gpu, folder: str, version: int) -> Chosen:
    found = tables().tuned(gpu, folder).get(call.describe())
    return Chosen(call.rule(gpu.sms), "rule") if found is None or not fits(found, call) else Chosen(found, "tuned")


def fits(config: Any, call: Call) -> bool:
    """True if this configuration fits the kernel's shared memory and registers."""
    of = call.of
    if isinstance(of, Attention):
        if not isinstance(config, Config) or config.consumers not in REGISTERS:
            return False
        few = config.accumulators(of) + SPARE_REGISTERS <= REGISTERS[config.consumers][1]
        step = 2 * STEP // of.dtype.bytes
        return few and config.tile_n % step == 0 and config.shared_bytes(of) <= SHARED_BYTES - RESERVE_BYTES
    if not isinstance(config, DecodeConfig):
        return False
    try:
        config.check(call.page or None, of, call.rows)
    except ArgumentError:
        return False
    return config.stages > 1 and config.shared_bytes(of) <= SHARED_BYTES - DECODE_RESERVE_BYTES


def candidates(call: Call) -> list[Any]:
    """Return the configurations worth timing: the rule's first, then those that differ least from it."""
    first = call.rule()
    found = _neighbours(first, call.of.dtype) if isinstance(first, Config) else _decoding(first, call.page)
    return [first, *(config for config in dict.fromkeys(found) if config != first and fits(config, call))]


def _neighbours(first: Config, dtype: DType) -> list[Config]:
    step = 2 * STEP // dtype.bytes
    found = [replace(first, ping_pong=not first.ping_pong), replace(first, guarded=not first.guarded)]
    found.append(replace(first, query_stages=3 - first.query_stages))
    for consumers in (first.consumers, 5 - first.consumers):
        for difference in (0, -1, 1, -2, 2, -3, 3):
            keys = first.tile_n + difference * step
            for stages in ((first.key_stages, first.value_stages), (2, 2), (3, 2), (4, 4)):
                if keys >= 2 * step:
                    found.append(replace(first, consumers=consumers, tile_n=keys, key_stages=stages[0],
                                         value_stages=stages[1]))  # fmt: skip
    return found


def _decoding(first: DecodeConfig, page: int) -> list[DecodeConfig]:
    early = replace(first, early_prologue=True, splits_per_read=16)
    found = [early, replace(early, stages=2), replace(early, stages=2, min_tiles_per_cta=2)]
    if page:
        paged = replace(early, prefetch_page_index=True)
        found += [paged, *(replace(paged, producer_warps=warps) for warps in (2, 4))]
    found += [replace(first, pdl=not first.pdl), replace(first, stages=first.stages - 1)]
    found += [replace(first, stages=first.stages - 2), replace(first, value_steps=max(2, first.value_steps // 2))]
    for keys in (64, 128):
        rows = keys if first.copy_rows == first.tile_n else first.copy_rows
        found += [replace(first, tile_n=keys, copy_rows=rows, stages=stages) for stages in (2, 3, 4, 6, 8, 12)]
    return found


def call_of(request: CheckedCall, *, page: int = 0, room: int = 0) -> Call:
    """Return the call of a request; room: capacity of the cache, in keys per sequence."""
    batch, queries, heads, _ = request.views["q"].shape
    of = request.of
    assert isinstance(of, (Attention, Decode))
    return Call(of, batch, heads, request.views["k"].shape[2], queries, room or request.keys, page)


def plain(of: Attention) -> bool:
    """True if the sizes determine the kernel's text, so that a choice can be stored for them."""
    return not (of.varlen or of.block_mask or of.window_left or of.score_mod is not None or of.mask_mod is not None)
