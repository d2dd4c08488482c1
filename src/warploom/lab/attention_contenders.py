"""Contenders for attention: ours, as a user calls it, and the backends of torch's scaled_dot_product_attention.

(nothing)                    what the library chooses
tile_n=96,consumers=3,...    its choice with other fields of `attention_config.Config`, or of decoding's `DecodeConfig`
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..errors import ArgumentError
from ..isa import dtypes
from ..kernels.hopper.attention_config import Attention, Config, default
from ..kernels.hopper.attention_decode_config import Decode, DecodeConfig
from ..operators.attention.choice import Call, chosen, plain
from ..operators.spec.gpu import EMULATED, Gpu, gpu_of
from .attention_operands import AttentionOperands, widened
from .attention_problem import DECODE, FORWARD, AttentionWork, DecodeProblem, ForwardProblem
from .contender import COMPILE_S, Beat, Contender, Prepared
from .evidence import facts
from .recipe import recipe
from .work import Work

BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION"}
"""Name of each backend in torch.nn.attention.SDPBackend."""
OWN_BF16 = "own-bf16"


class WarploomAttention(Contender):
    """Ours. `name` is "warploom", or "warploom:FIELDS" if part of the configuration is pinned."""

    dtypes = ("bf16", "f16", "e4m3")
    scales = ("", "head")
    kinds = (FORWARD, DECODE)

    def __init__(self, config: str = "") -> None:
        """Raises ArgumentError for a text that does not name fields."""
        self.fields = fields_of(config) if config else {}
        self.name = f"warploom:{config}" if config else "warploom"

    def prepare(self, problem: AttentionWork, sets: Sequence[AttentionOperands], beat: Beat) -> Prepared:
        beat(f"{self.name}, building", COMPILE_S)
        config = changed(choice(problem, gpu(sets)), self.fields)
        make: Callable[..., Prepared] = ours if isinstance(problem, ForwardProblem) else ours_decode
        return make(problem, sets, config, pinned=bool(self.fields))


class TorchAttention(Contender):
    """A backend of torch's scaled_dot_product_attention."""

    dtypes = ("bf16", "f16")
    kinds = (FORWARD, DECODE)

    def __init__(self, name: str) -> None:
        self.name = name

    def missing(self, problem: Work | None = None) -> str | None:
        """torch has no mask that keeps its fast kernels for windows, pages, ragged caches and several tokens."""
        reason = super().missing(problem)
        if reason is not None or problem is None:
            return reason
        if isinstance(problem, ForwardProblem):
            return "it has no window" if problem.window else None
        if isinstance(problem, DecodeProblem):
            asked = {"pages": problem.page, "lengths": problem.ragged, "cache of e4m3": problem.fp8_kv,
                     "mask for several tokens": problem.queries > 1}  # fmt: skip
            return next((f"it has no {what}" for what, there in asked.items() if there), None)
        return None

    def prepare(self, problem: AttentionWork, sets: Sequence[AttentionOperands], beat: Beat) -> Prepared:
        beat(f"{self.name}, first call", COMPILE_S)
        return Prepared([self.call(problem, one) for one in sets], "scaled_dot_product_attention", self.name)

    def call(self, problem: AttentionWork, one: AttentionOperands) -> Callable[[], object]:
        """One call; its result is its attribute `result`."""
        import torch.nn.functional as F  # noqa: N812
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = getattr(SDPBackend, BACKENDS[self.name])
        causal = isinstance(problem, ForwardProblem) and problem.causal
        grouped = one.q.shape[1] != one.k.shape[1]

        def call() -> None:
            with sdpa_kernel([backend]):
                call.result = F.scaled_dot_product_attention(  # type: ignore[attr-defined]
                    one.q, one.k, one.v, is_causal=causal, enable_gqa=grouped
                )

        return call


class WarploomBf16(Contender):
    """Our own kernel on the same numbers in bf16, as a baseline for e4m3: torch has no eight-bit attention."""

    name = OWN_BF16
    dtypes = ("e4m3",)
    scales = ("head",)
    kinds = (FORWARD,)

    def prepare(self, problem: ForwardProblem, sets: Sequence[AttentionOperands], beat: Beat) -> Prepared:
        beat(f"{self.name}, building", COMPILE_S)
        wide = [widened(one) for one in sets]
        for one, made in zip(sets, wide, strict=True):
            made.out = one.out
        return ours(problem.wide, wide, default(subject(problem.wide)))


# -- ours ------------------------------------------------------------------------------------------------------------


def subject(problem: ForwardProblem) -> Attention:
    """The attention problem as the kernel's description."""
    return Attention(
        getattr(dtypes, problem.dtype), problem.head_dim, problem.columns,
        window_right=problem.causal or bool(problem.window), window_left=bool(problem.window),
        scaled=problem.dtype == "e4m3",
    )  # fmt: skip


def ours(
    problem: ForwardProblem, sets: Sequence[AttentionOperands], config: Config, *, pinned: bool = True
) -> Prepared:
    """Calls of `warploom.attention`, and facts about its kernel. Raises the library's errors."""
    from ..kernels.hopper import attention as kernels
    from ..operators.attention.calls import attention

    of = subject(problem)
    found = facts(kernels.build(of, config), recipe(kernels.build, of, config))
    calls = [
        partial(attention, one.q, one.k, one.v, **one.scales, causal=problem.causal, window=problem.window,
                out=one.out, lse=one.lse, config=config if pinned else None)
        for one in sets
    ]  # fmt: skip
    return Prepared(calls, "attention", str(config), found)


def gpu(sets: Sequence[AttentionOperands]) -> Gpu:
    """The GPU that the arrays are on; the emulated one if they are in CPU memory, or nowhere."""
    return gpu_of(sets[0].q.device.index) if sets and sets[0].q.is_cuda else EMULATED


def choice(problem: AttentionWork, where: Gpu) -> Any:
    """The configuration that the library runs on a GPU."""
    if isinstance(problem, DecodeProblem):
        call = Call(decode_subject(problem), problem.batch, problem.heads, problem.kv_heads, problem.queries,
                    problem.length, problem.page)  # fmt: skip
        return chosen(call, where).config
    of, (batch, heads, length, _) = subject(problem), problem.sizes
    if not plain(of):
        return default(of)
    return chosen(Call(of, batch, heads, heads // problem.group, length, length), where).config


def decode_subject(problem: DecodeProblem) -> Decode:
    """The attention problem as the kernel's description."""
    return Decode(head_dim=problem.dim, value_dim=problem.dim, paged=bool(problem.page), fp8_kv=problem.fp8_kv)


def ours_decode(
    problem: DecodeProblem, sets: Sequence[AttentionOperands], config: DecodeConfig, *, pinned: bool = True
) -> Prepared:
    """Calls of `warploom.attention_decode`, and facts about its kernel. Raises the library's errors."""
    from ..kernels.hopper import attention_decode as kernels
    from ..operators.attention.decode import attention_decode

    of = decode_subject(problem)
    found = facts(kernels.build(of, config), recipe(kernels.build, of, config))
    calls = []
    for one in sets:
        k, v, table = one.pages or (one.k, one.v, None)
        calls.append(partial(attention_decode, one.q, k, v, one.lengths, table=table, out=one.out, lse=one.lse,
                             config=config if pinned else None))  # fmt: skip
    return Prepared(calls, "attention_decode", str(config), found)


# -- configurations as text ------------------------------------------------------------------------------------------


def fields_of(text: str) -> dict[str, int]:
    """The fields of "tile_n=96,consumers=3". Raises ArgumentError for any other text."""
    known = {field.name for kind in (Config, DecodeConfig) for field in dataclasses.fields(kind)}
    found = {}
    for word in text.split(","):
        name, _, value = (part.strip() for part in word.partition("="))
        if name not in known or not value.isdecimal():
            raise ArgumentError(
                "this is not a configuration of attention", expected=f"FIELD=NUMBER,… of {', '.join(sorted(known))}",
                got=word,
            )  # fmt: skip
        found[name] = int(value)
    return found


def changed(config: Any, fields: dict[str, int]) -> Any:
    """A configuration with some fields changed. Raises ArgumentError for an unknown field."""
    kinds = {field.name: type(getattr(config, field.name)) for field in dataclasses.fields(config)}
    for name in fields:
        if name not in kinds:
            raise ArgumentError(f"{type(config).__name__} has no field {name!r}", expected=", ".join(kinds), got=name)
    return dataclasses.replace(config, **{name: kinds[name](value) for name, value in fields.items()})
