"""`attention_decode`: few queries per sequence, with keys and values in a contiguous or paged cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, cast

import numpy as np

from ...collective.tile.sizes import MOST_GROUPS
from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import e4m3, f32, s32, s64, u32
from ...kernels.hopper.attention_decode_config import MOST_ROWS, ROWS, Decode, DecodeConfig
from ...runtime.arrays import ArrayView
from ...runtime.launch_template import Launched
from ...runtime.program import Program
from ...settings import config as settings
from .. import kernel_cache
from ..dispatch_hook import load_torch_plugin
from ..spec.gpu import EMULATED, gpu_of
from ..spec.problem import TMA_BYTES
from ..views import restrided
from ..workspace import fill, of_call, of_stream
from .calls import CACHE, Family, check_machine, compute, hashed, launch_bound, without_keys
from .choice import call_of, chosen
from .limits import LONGEST, check_countable
from .machine import EMULATED_SMS
from .request import (
    SIXTEEN_BITS,
    CheckedCall,
    array_of,
    check_layout,
    check_sinks,
    check_sizes,
    check_types,
    exchanged,
    numbers_of,
    permuted,
    window_of,
)  # fmt: skip
from .scales import arrays_and_numbers, check_scales, positive

EMULATED_COST = 8
"""Emulation cost relative to attention's wgmma products: decoding uses warp-level mma.sync."""


def attention_decode(
    q: Any,
    k: Any,
    v: Any,
    lengths: Any,
    *,
    table: Any = None,
    causal: bool = True,
    scale: float | None = None,
    window: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    k_scale: Any = None,
    v_scale: Any = None,
    layout: str = "bhsd",
    return_lse: bool = False,
    out: Any = None,
    lse: Any = None,
    config: DecodeConfig | None = None,
    constant_lengths: bool = False,
) -> Any:
    """Compute softmax(scale Q Kᵀ + mask) V for the newest few tokens of each sequence, with K and V in a cache.

    One launch distributes the tiles of all sequences evenly over the SMs. The last CTA to finish a head combines its
    splits, in an order that depends only on the lengths. The kernel reads the lengths, so a CUDA graph follows them and
    no planning call is needed. CUDA arrays run on their GPU, on the current stream, asynchronously; NumPy arrays and
    CPU tensors in the emulator.

    Args:
        q: (B, H, R, D): B sequences, H heads, the last R tokens, 1 to 16. bf16 or f16; D a multiple of 8 up to 256.
            (B, H, D) for one token; then the result has no token dimension, either.
        k: (B, G, T, D): capacity of T keys per sequence, G heads; H is a multiple of G. With `table` (N, G, P, D):
            N pages of P keys.
        v: (B, G, T, E), or (N, G, P, E). k and v may both be e4m3: then D and E are multiples of 16, and products are
            computed in f16, so q is clamped to its range.
        lengths: (B,) s32: the number of keys of each sequence, including the R newest. On a GPU the values are not
            checked; the kernel clamps them to 0 and the capacity. At most 1024 sequences.
        table: (B, W) s32: the pages of each sequence in order; pages may have any size. Entries after a sequence's last
            page are not read; a page that does not exist reads as zeros.
        causal: the last token sees all keys, each earlier one a key less; False: all tokens see all keys.
        scale: factor of the scores, positive; 1 / sqrt(D) by default.
        window: keys before its own that a token sees; or (left, 0) as in `attention`. Needs `causal`.
        softcap, sinks: as in `attention`.
        k_scale, v_scale: for e4m3, factors of k and v: two numbers, or two arrays (B, G) f32.
        layout: of q, k, v and the result: "bhsd", or "bshd": (B, R, H, D), (B, T, G, D), (N, P, G, D).
        return_lse: also return the log-sum-exp of the scores, (B, H, R) f32.
        out, lse: arrays for the result and the log-sum-exp.
        config: a configuration instead of the chosen one.
        constant_lengths: a promise that no earlier kernel in the stream is still writing `lengths` or `table`. They are
            then read while that kernel ends; K, V and Q are read after it. If the promise is broken, results are wrong.

    A token that sees no key gets zeros, and -inf as log-sum-exp. k and v may hold anything past a sequence's end,
    including NaN. Calls on one stream share the workspace for splits. The first call allocates it, so make one call
    before capturing a graph. There are no gradients.

    Raises ArgumentError and ArgumentTypeError for invalid arguments (before any launch), CostLimitError for an
    emulation that would take too long, DriverError, CompilationError.
    """
    form = None
    if table is None and k_scale is None and v_scale is None and out is None and lse is None and not return_lse:
        seen = (q, k, v, lengths) if sinks is None else (q, k, v, lengths, sinks)
        try:
            chosen_by = (causal, scale, window, softcap, layout, config, constant_lengths)
            form = ("decode", *chosen_by, q.nbytes, k.nbytes, v.nbytes)
            if (made := CACHE.fresh(form, seen)) is not None:
                return made[0]
        except (AttributeError, RuntimeError, TypeError):  # not torch tensors, or an argument without a hash
            form = None
    tensors = {"q": q, "k": k, "v": v, "lengths": lengths}
    tensors |= {} if table is None else {"table": table}
    tensors |= {} if sinks is None else {"sinks": sinks}
    arrays, numbers = arrays_and_numbers(k_scale=k_scale, v_scale=v_scale)
    tensors |= arrays
    options = {
        "numbers": numbers,
        "causal": causal,
        "scale": scale,
        "window": window,
        "softcap": softcap,
        "layout": layout,
        "constant_lengths": constant_lengths,
    }
    static = ("decode", causal, scale, hashed(window), softcap, layout, config, table is not None, sinks is not None,
              constant_lengths, *sorted(numbers.items()), *arrays)  # fmt: skip
    tokens = {"bshd": 1, "bhsd": 2}.get(str(layout)) if table is None else None
    family = Family(
        DecodeConfig, run, "kernels.hopper.attention_decode_config.DecodeConfig",
        {} if tokens is None else {"k": tokens, "v": tokens}, "T",
    )  # fmt: skip
    return compute(tensors, partial(read, **options), static, out, lse, return_lse, config, family, form)


def attention_step(tensors: dict[str, Any], **options: Any) -> Any:
    """`attention_decode` and the log-sum-exp, with memory that is freed after the call: for graphs of `torch.compile`,
    which own all memory. It clears counters each time. Tensors by name, and all options of `read`."""
    family = Family(DecodeConfig, partial(run, kept=False), "")
    return compute(tensors, partial(read, **options), None, None, None, True, None, family)


def _compiled(*arrays: Any, **options: Any) -> Any:
    """What torch.compile traces instead of `attention_decode` until the PyTorch plug-in is loaded."""
    return load_torch_plugin() and attention_decode._torchdynamo_inline(*arrays, **options)  # type: ignore[attr-defined]


attention_decode._torchdynamo_inline = _compiled  # type: ignore[attr-defined]


@dataclass(frozen=True)
class DecodeRequest(CheckedCall):
    """A checked call.

    Attributes:
        one: q has no token dimension.
        room: capacity of the cache, in keys per sequence.
        constant_lengths: the caller's promise.
    """

    of: Decode
    one: bool = False
    room: int = 0
    constant_lengths: bool = False

    def seen(self, array: ArrayView) -> ArrayView:
        """Return an array of the result's shape in the kernel's layout."""
        return permuted(one_token(array, self.layout) if self.one else array, self.layout)

    @property
    def keys(self) -> int:
        return self.room

    @property
    def group(self) -> int:
        """Query heads per key head."""
        return self.views["q"].shape[2] // max(1, self.views["k"].shape[2])

    @property
    def flops(self) -> int:
        """FLOP for the emulator's time estimate, from the lengths or, if they are on a GPU, from the capacity."""
        batch, _, heads, _ = self.views["q"].shape
        told = self.views["lengths"].host
        keys = batch * self.room if told is None else int(np.clip(told, 1, self.room).sum())
        rows = -(-self.views["q"].shape[1] * self.group // ROWS) * ROWS
        return EMULATED_COST * 2 * rows * heads // self.group * keys * (self.of.head_dim + self.of.value_dim)


def read(
    tensors: dict[str, Any], *, layout: str, causal: bool, scale: float | None, window: Any, softcap: float | None,
    numbers: dict[str, float], constant_lengths: bool = False,
) -> DecodeRequest:  # fmt: skip
    """Check the arguments. Raises ArgumentError, ArgumentTypeError."""
    check_layout(layout, "attention_decode")
    if not isinstance(constant_lengths, bool):
        raise ArgumentError("`constant_lengths` is unknown", expected="True or False", got=repr(constant_lengths))
    ranks = {"sinks": 1, "lengths": 1, "table": 2, "k_scale": 2, "v_scale": 2}
    one = len(getattr(tensors["q"], "shape", ())) == 3
    seen = {name: array_of(value, name, ranks.get(name, 3 if one and name == "q" else 4))
            for name, value in tensors.items()}  # fmt: skip
    given = {name: seen[name].shape for name in ("q", "k", "v")}
    paged = "table" in seen
    own = seen | ({"q": one_token(seen["q"], layout)} if one else {})
    views = {name: permuted(own[name], layout) for name in ("q", "k", "v")}
    fp8_kv = seen["k"].dtype is e4m3
    _check_cache(seen, views, fp8_kv, numbers)
    check_sizes(views, given, layout, paged=paged)
    batch, queries, heads, head_dim = views["q"].shape
    check_sinks(seen, heads)
    if not 1 <= queries <= MOST_ROWS and views["q"].size:
        raise ArgumentError(
            "attention_decode takes the last few tokens of each sequence", expected=f"1 to {MOST_ROWS}", got=queries,
            hint="attention and attention_varlen take any number",
        )  # fmt: skip
    views |= {name: seen[name] for name in ("lengths", "table", "sinks", "k_scale", "v_scale") if name in seen}
    room = views["k"].shape[1] * (seen["table"].shape[1] if paged else 1)
    check_countable("keys that a sequence has room for", room, "a narrower table", LONGEST)
    _check_lengths(views, batch, room)
    left = _left(window, causal)
    value_dim = views["v"].shape[3]
    of = Decode(
        views["q"].dtype, head_dim, value_dim, paged=paged, fp8_kv=fp8_kv, scaled="k_scale" in seen,
        window_left=left is not None, softcap=softcap is not None, sinks="sinks" in seen,
    )  # fmt: skip
    of_scores = "scale" if softcap is None else "inner"
    given_numbers = numbers_of(of, (None, None), scale, softcap) | {"causal": int(causal)}
    given_numbers[of_scores] = positive(given_numbers[of_scores] * numbers.get("k_scale", 1.0), "scale * k_scale")
    given_numbers |= {} if left is None else {"left": left}
    given_numbers |= {"v_factor": float(numbers.get("v_scale", 1.0))} if fp8_kv and not of.scaled else {}
    shape = exchanged((batch, queries, heads, value_dim), layout)
    if one:
        shape = (batch, heads, value_dim)
    return DecodeRequest(of, views, given_numbers, layout, shape, (batch, heads, queries), one, room,
                         constant_lengths)  # fmt: skip


def _check_cache(
    seen: dict[str, ArrayView], views: dict[str, ArrayView], fp8_kv: bool, numbers: dict[str, float]
) -> None:
    """Check the types of q, k and v, and the scales of e4m3 arrays."""
    shape = (views["q"].shape[0], views["k"].shape[2])
    check_scales(seen, numbers, {"k_scale": shape, "v_scale": shape}, ("k", "v"))
    if not fp8_kv:
        check_types(seen, SIXTEEN_BITS)
        return
    check_types(
        {name: array for name, array in seen.items() if name not in ("k", "v")} | {"k": seen["q"], "v": seen["q"]},
        SIXTEEN_BITS,
    )
    for name in ("k", "v"):
        if views[name].shape[3] % TMA_BYTES:
            raise ArgumentError(
                f"rows of `{name}` are whole 16 bytes", expected=f"a multiple of {TMA_BYTES}", got=views[name].shape[3]
            )  # fmt: skip


def one_token(array: ArrayView, layout: str) -> ArrayView:
    """Insert the token dimension into (B, H, D), at its position in the layout."""
    at = 2 if layout == "bhsd" else 1
    step = array.shape[-1] * array.dtype.bytes
    return restrided(
        array, (*array.shape[:at], 1, *array.shape[at:]), (*array.strides[:at], step, *array.strides[at:])
    )  # fmt: skip


def _left(window: Any, causal: bool) -> int | None:
    if not isinstance(causal, bool):
        raise ArgumentError("`causal` is unknown", expected="True or False", got=repr(causal))
    left, right = window_of(window, True)
    if right or (left is not None and not causal):
        raise ArgumentError(
            "a window of attention_decode ends with a token's own key", expected="(left, 0), and causal",
            got=f"window={window!r}, causal={causal}",
        )  # fmt: skip
    return left


def _check_lengths(views: dict[str, ArrayView], batch: int, room: int) -> None:
    """Check lengths and pages; values on a GPU are not checked, to avoid a synchronisation."""
    for name, what in (("lengths", "a number of keys"), ("table", "a row of pages")):
        if name not in views:
            continue
        array = views[name]
        if array.dtype not in (s32, s64):
            raise ArgumentTypeError(
                f"`{name}` has the wrong type", expected="s32 or s64", got=array.describe(), code="wrong-type"
            )
        if array.shape[0] != batch:
            raise ArgumentError(f"`{name}` has {what} for each sequence", expected=batch, got=array.shape)
    if batch > MOST_GROUPS:
        raise ArgumentError(
            "there are too many sequences for one launch", expected=f"at most {MOST_GROUPS}", got=batch,
            hint="call it for some of them after each other",
        )  # fmt: skip
    told = views["lengths"].host
    if told is None:
        return
    if np.any(told < 0) or np.any(told > room):
        raise ArgumentError(
            "`lengths` does not fit the cache",
            expected=f"0 to {room} keys for each sequence",
            got=told.tolist()[:20],
            code="wrong-shape",
        )
    table = views["table"].host if "table" in views else None
    if table is not None:
        pages, size = views["k"].shape[:2]
        used = np.arange(table.shape[1]) * size < told[:, None]
        if np.any(used & ((table < 0) | (table >= pages))):
            raise ArgumentError(
                "`table` names pages that do not exist", expected=f"0 to {pages - 1} where a sequence has keys",
                got=table[used].tolist()[:20],
            )  # fmt: skip


# -- one launch ------------------------------------------------------------------------------------------------------


def run(
    request: DecodeRequest, target: ArrayView, sums: ArrayView, config: DecodeConfig | None, *, kept: bool = True
) -> Launched | None:
    """Launch, and return what repeats the launch: on a GPU, if nothing was copied, else None. kept: use the stream's
    workspace instead of one of this call."""
    if 0 in (target.size, request.keys, request.views["k"].size):
        without_keys(request, target, sums)
        return None
    check_machine(request)
    q, k = request.views["q"], request.views["k"]
    rows = q.shape[1] * request.group
    if config is None:
        call = call_of(request, page=k.shape[1] if request.of.paged else 0, room=request.room)
        config = cast(DecodeConfig, chosen(call, EMULATED if q.device == "cpu" else gpu_of(q.index)).config)
    if request.constant_lengths:
        config = replace(config, constant_lengths=True)
    config.check(k.shape[1] if request.of.paged else None, request.of, rows)
    program = _program(request.of, config, None if q.device == "cpu" else settings.cache_dir)
    chunks = -(-rows // config.tile_m)
    memory = (_memory if kept else _memory_of_call)(request, config, q.shape[0] * k.shape[2] * chunks)
    return launch_bound(program, request, {"out": target, "lse": sums}, memory)


@lru_cache(maxsize=64)
def _program(of: Decode, config: DecodeConfig, folder: Path | None) -> Program:
    """Return the kernel's program; with a folder, cached on disk."""

    def trace() -> Program:
        from ...kernels.hopper import attention_decode

        return attention_decode.build(of, config).program()

    return trace() if folder is None else kernel_cache.kept(f"decode {of!r} {config!r}", trace, folder)


def _memory(request: DecodeRequest, config: DecodeConfig, places: int) -> dict[str, ArrayView]:
    """Return the workspace for splits and the counters, 0 between launches; each stream and graph has its own. Clusters
    need neither."""
    if config.cluster:
        return {}
    q = request.views["q"]
    return {
        "workspace": of_stream("decode", _splits(request, config), f32, q),
        "counters": of_stream("decode counters", (places,), u32, q),
    }


def _memory_of_call(request: DecodeRequest, config: DecodeConfig, places: int) -> dict[str, ArrayView]:
    """Return the same, of one call."""
    if config.cluster:
        return {}
    q = request.views["q"]
    memory = {"workspace": of_call(_splits(request, config), f32, q), "counters": of_call((places,), u32, q)}
    fill(memory["counters"], number=0)
    return memory


def _splits(request: DecodeRequest, config: DecodeConfig) -> tuple[int, int]:
    """Return the shape of the workspace."""
    q = request.views["q"]
    sms = EMULATED_SMS if q.device == "cpu" else gpu_of(q.index).sms
    return 2 * sms, config.block_elements(request.of)
