"""Requests: the checked arguments of an `attention` call, in the form that the kernel takes.

The kernel sees arrays as (batch, length, head, dimension); swapping dimensions of the caller's layout changes strides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError
from ...isa.dtypes import DType, bf16, e4m3, f16, f32, s32, s64
from ...kernels.hopper.attention_config import LOG2_E, MOST_SEQUENCES, Attention, Padded, section
from ...plural import counted
from ...runtime.arrays import ArrayView, view
from ..spec.problem import TMA_BYTES
from ..views import restrided
from .blocks import check_block_mask, function_of
from .captured import Contents
from .function_arguments import with_functions
from .limits import check_lengths, within
from .scales import check_fast, check_scales, positive

LAYOUTS = {"bhsd": (0, 2, 1, 3), "bshd": (0, 1, 2, 3)}
"""Axes of (batch, length, head, dimension) in a caller's array."""
MOST_DIM = 256
SIXTEEN_BITS = (bf16, f16)
"""Types with full support; e4m3 has no gradients."""
Edges = tuple[int | None, int | None]
RANKS = {"sinks": 1, "q_scale": 2, "k_scale": 2, "v_scale": 2}
"""Ranks of arrays other than q, k and v."""
CAUSAL = ("bottom-right", "top-left")
CONVERSIONS = {
    "torch": "convert with .to(torch.bfloat16)",
    "numpy": "convert with .astype(numpy.float16) or .astype(ml_dtypes.bfloat16)",
    "jax": "convert with .astype(jax.numpy.bfloat16)",
    "cupy": "convert with .astype(cupy.float16)",
}
"""How arrays of a framework get a type that attention takes."""


@dataclass(frozen=True)
class CheckedCall:
    """A checked call of a family of kernels.

    Attributes:
        of: the subject, which determines the kernel's text.
        views: "q", "k", "v" and the other arrays in the kernel's layout; some may have to be copied.
        numbers: the kernel's scalars.
        layout: the caller's layout; "thd" for packed sequences.
        shape: the result's shape, in the caller's layout.
        lse_shape: (B, H, S).
    """

    of: Padded
    views: dict[str, ArrayView]
    numbers: dict[str, float]
    layout: str
    shape: tuple[int, ...]
    lse_shape: tuple[int, ...]

    def seen(self, array: ArrayView) -> ArrayView:
        """Return an array of the result's shape in the kernel's layout."""
        return one_batch(array) if self.layout == "thd" else permuted(array, self.layout)

    @property
    def keys(self) -> int:
        """Keys per sequence, or the cache's capacity."""
        return self.views["k"].shape[1]

    @property
    def flops(self) -> int:
        """FLOP of both products, including masked scores."""
        batch, queries, heads, _ = self.views["q"].shape
        return 2 * batch * heads * queries * self.keys * (self.of.head_dim + self.of.value_dim)


@dataclass(frozen=True)
class Request(CheckedCall):
    """A checked call of `attention` or `attention_varlen`.

    Attributes:
        block_mask: a FlexAttention block mask, or None.
    """

    of: Attention
    block_mask: Any = None


def read(
    tensors: dict[str, Any], *, layout: str, causal: bool | str, scale: float | None, window: Any,
    softcap: float | None, score_mod: Any = None, mask_mod: Any = None, block_mask: Any = None,
    numbers: Mapping[str, float] | None = None, fast_accumulation: bool = False,
    contents: Mapping[str, Contents] | None = None,
) -> Request:  # fmt: skip
    """Check the arguments; `numbers`: scales that are not arrays; `contents`: the functions, if they were read.

    Raises ArgumentError, ArgumentTypeError.
    """
    check_options(causal, scale, window, softcap, layout)
    seen = {name: array_of(value, name, RANKS.get(name, 4)) for name, value in tensors.items()}
    given = {name: seen[name].shape for name in ("q", "k", "v")}
    views = {name: permuted(seen[name], layout) for name in ("q", "k", "v")}
    check_types(seen)
    check_sizes(views, given, layout)
    batch, queries, heads, head_dim = views["q"].shape
    value_dim, keys = views["v"].shape[3], views["k"].shape[1]
    check_sinks(seen, heads)
    check_scales(seen, numbers or {}, _scale_shapes(batch, heads, views["k"].shape[2]), ("q", "k", "v"))
    views |= {name: seen[name] for name in RANKS if name in seen}
    edges = _edges(causal, window, queries, keys, queries + keys)
    if block_mask is not None:
        if edges != (None, None) or mask_mod is not None:
            raise ArgumentError(
                "a block mask says all that is seen", expected="block_mask= without causal=, window= and mask_mod=",
                got=f"causal={causal!r}, window={window!r}, mask_mod={mask_mod!r}",
            )  # fmt: skip
        check_block_mask(block_mask, views["q"].shape, keys, views["q"].place)
        mask_mod = function_of(block_mask)
    of = _subject(views, edges, softcap, fast_accumulation)
    uneven = of.window_right or block_mask is not None
    begin = min(section(of, uneven, keys, heads, views["k"].shape[2]), max(1, batch * heads))
    found = numbers_of(of, edges, scale, softcap) | {"section": begin}
    found = _scaled(of, found, numbers or {})
    if score_mod is not None or mask_mod is not None:
        if softcap is not None and score_mod is not None:
            raise ArgumentError("a softcap is a function of scores", expected="softcap= or score_mod=", got="both")
        of, found = with_functions(of, found, views, score_mod, mask_mod, contents or {})
    of = replace(of, block_mask=block_mask is not None)
    shape = tuple(exchanged((batch, queries, heads, value_dim), layout))
    return Request(of, views, found, layout, shape, (batch, heads, queries), block_mask)


def read_varlen(
    tensors: dict[str, Any], *, longest: int | None, causal: bool | str, scale: float | None, window: Any,
    softcap: float | None, numbers: Mapping[str, float] | None = None, fast_accumulation: bool = False,
) -> Request:  # fmt: skip
    """Like `read`, for packed sequences: q (rows, H, D), k and v (rows, G, D), and the sequences' offsets.

    longest: most keys of a sequence, if the caller knows it.
    """
    check_options(causal, scale, window, softcap)
    check_longest(longest)
    ranks = RANKS | dict.fromkeys(("q", "k", "v"), 3)
    seen = {name: array_of(value, name, ranks.get(name, 1)) for name, value in tensors.items()}
    views = {name: one_batch(seen[name]) for name in ("q", "k", "v")}
    check_types(seen)
    check_sizes(views, {name: seen[name].shape for name in ("q", "k", "v")}, "thd")
    check_from_ends(causal)
    _, rows, heads, head_dim = views["q"].shape
    check_sinks(seen, heads)
    check_scales(seen, numbers or {}, _scale_shapes(1, heads, views["k"].shape[2]), ("q", "k", "v"))
    views |= {name: seen[name] for name in RANKS if name in seen}
    views |= _sequences(seen, rows, views["k"].shape[1])
    edges = _edges(causal, window, 0, 0, rows + views["k"].shape[1])
    of = replace(_subject(views, edges, softcap, fast_accumulation), varlen=True)
    count = views["cu_seqlens_q"].shape[0]
    length = longest or max(1, views["k"].shape[1] // max(1, count))
    begin = min(section(of, True, length, heads, views["k"].shape[2]), max(1, heads))
    found = numbers_of(of, edges, scale, softcap) | {"section": begin}
    return Request(of, views, _scaled(of, found, numbers or {}), "thd", (rows, heads, of.value_dim), (1, heads, rows))


def check_options(causal: Any, scale: Any, window: Any, softcap: Any, layout: Any = "bhsd") -> None:
    """Raise ArgumentError for invalid options."""
    check_layout(layout, "attention")
    if not isinstance(causal, (bool, np.bool_, int, str)) or causal not in (False, True, *CAUSAL):
        raise ArgumentError("`causal` is unknown", expected=f"True, False, {', '.join(CAUSAL)}", got=repr(causal))
    window_of(window, bool(causal))
    for name, value in (("scale", scale), ("softcap", softcap)):
        if value is not None:
            positive(value, name)


def check_layout(layout: Any, called: str) -> None:
    """Raise ArgumentError for an unknown layout."""
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise ArgumentError(f"{called} knows no such layout", expected=", ".join(LAYOUTS), got=repr(layout))


def check_longest(longest: Any, name: str = "max_seqlen_k") -> None:
    """Raise ArgumentError unless `longest` is None or a length."""
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, Integral) or longest < 0):
        raise ArgumentError(f"`{name}` is a number of rows", expected="a whole number, or None", got=repr(longest))


def check_from_ends(causal: Any) -> None:
    """Raise ArgumentError for a top-left causal mask, which packed sequences do not support."""
    if isinstance(causal, str) and causal == "top-left":
        raise ArgumentError("sequences of different lengths are masked from their ends", got="causal='top-left'")


def one_batch(array: ArrayView) -> ArrayView:
    """View (rows, heads, dimension) as an array with a batch of one."""
    return restrided(array, (1, *array.shape), (max(1, array.shape[0]) * array.strides[0], *array.strides))


def _sequences(seen: dict[str, ArrayView], queries: int, keys: int) -> dict[str, ArrayView]:
    """Return the ends of the sequences. Raises ArgumentError; offsets on a GPU are not checked, to avoid a sync."""
    found, counts = {}, set()
    for name, rows in (("cu_seqlens_q", queries), ("cu_seqlens_k", keys)):
        marks = seen[name]
        if marks.dtype not in (s32, s64):
            raise ArgumentTypeError(
                f"`{name}` has the wrong type", expected="s32 or s64", got=marks.dtype, code="wrong-type"
            )
        if marks.shape[0] < 1:
            raise ArgumentError(f"`{name}` is empty", expected="0 and where each sequence ends", got=marks.shape)
        counts.add(marks.shape[0])
        if marks.host is not None:
            given = marks.host
            if given[0] != 0 or np.any(np.diff(given) < 0) or given[-1] > rows:
                raise ArgumentError(
                    f"`{name}` does not say where sequences begin and end",
                    expected=f"0, then where each ends, ascending, at most {rows}", got=given.tolist()[:20],
                )  # fmt: skip
        (step,) = marks.strides
        host = None if marks.host is None else marks.host[1:]
        found[name] = replace(marks, pointer=marks.pointer + step, shape=(marks.shape[0] - 1,), host=host)
    if len(counts) > 1:
        raise ArgumentError(
            "`cu_seqlens_q` and `cu_seqlens_k` are of different numbers of sequences", expected="one length",
            got=", ".join(str(array.shape[0]) for array in found.values()),
        )  # fmt: skip
    if found["cu_seqlens_q"].shape[0] > MOST_SEQUENCES:
        raise ArgumentError(
            "there are too many sequences for one launch", expected=f"at most {MOST_SEQUENCES}",
            got=found["cu_seqlens_q"].shape[0], hint="call it for some of them after each other",
        )  # fmt: skip
    return found


def _subject(views: dict[str, ArrayView], edges: Edges, softcap: float | None, fast_accumulation: bool) -> Attention:
    q, v = views["q"], views["v"]
    check_fast(fast_accumulation, q.dtype)
    return Attention(
        q.dtype, q.shape[3], v.shape[3], window_right=edges[1] is not None, window_left=edges[0] is not None,
        sinks="sinks" in views, softcap=softcap is not None, scaled="k_scale" in views,
        fast_accumulation=bool(fast_accumulation),
    )  # fmt: skip


def numbers_of(of: Padded, edges: Edges, scale: float | None, softcap: float | None) -> dict[str, float]:
    """Return the kernel's scalars by name: `scale` for exp2, `inner` inside a softcap, the edges of a window.

    Raises ArgumentError for a scale or a softcap that is not a positive number.
    """
    scale = 1 / math.sqrt(of.head_dim) if scale is None else positive(scale, "scale")
    numbers: dict[str, float] = {"scale": scale * LOG2_E}
    if softcap is not None:
        cap = positive(softcap, "softcap")
        numbers |= {"scale": cap * LOG2_E, "inner": positive(scale / cap, "scale / softcap")}
    return numbers | {name: edge for name, edge in zip(("first", "last"), edges, strict=True) if edge is not None}


def _scale_shapes(batch: int, heads: int, kv_heads: int) -> dict[str, tuple[int, ...]]:
    return {"q_scale": (batch, heads), "k_scale": (batch, kv_heads), "v_scale": (batch, kv_heads)}


def _scaled(of: Attention, numbers: dict[str, float], scales: Mapping[str, float]) -> dict[str, float]:
    """Return the kernel's scalars with the scales of e4m3 arrays included."""
    if not of.fp8 or of.scaled:
        return numbers
    name = "inner" if of.softcap else "scale"
    both = scales.get("q_scale", 1.0) * scales.get("k_scale", 1.0)
    return numbers | {
        name: positive(numbers[name] * both, "scale * q_scale * k_scale"),
        "v_factor": float(scales.get("v_scale", 1.0)),
    }


def check_sinks(seen: dict[str, ArrayView], heads: int) -> None:
    if "sinks" in seen and seen["sinks"].shape != (heads,):
        raise ArgumentError(
            "`sinks` has one score for each query head", expected=f"({heads},)", got=seen["sinks"].shape
        )


def permuted(array: ArrayView, layout: str) -> ArrayView:
    """Permute to (batch, length, head, dimension), and back: the permutations are their own inverses."""
    return restrided(array, exchanged(array.shape, layout), exchanged(array.strides, layout))


def exchanged(values: tuple[int, ...], layout: str) -> tuple[int, ...]:
    return tuple(values[at] for at in LAYOUTS[layout])


def array_of(value: Any, name: str, rank: int) -> ArrayView:
    """View an argument with `rank` dimensions. Raises ArgumentError for another rank, ArgumentTypeError if no array."""
    found = view(value, name)
    if len(found.shape) != rank:
        raise ArgumentError(
            f"`{name}` has {counted(len(found.shape), 'dimension')}", expected=f"{rank}", got=found.describe(),
            hint="attention_varlen takes sequences one after the other" if (rank, len(found.shape)) == (4, 3) else None,
        )  # fmt: skip
    return found


def check_types(seen: dict[str, ArrayView], allowed: tuple[DType, ...] = (*SIXTEEN_BITS, e4m3)) -> None:
    """Raise ArgumentTypeError unless q, k and v have one of these types, and sinks f32, bf16 or f16; ArgumentError for
    arrays on several devices.
    """
    q = seen["q"]
    *others, last = map(str, allowed)
    types = f"{', '.join(others)} or {last}"
    for name in ("q", "k", "v"):
        if seen[name].dtype not in allowed or seen[name].dtype is not q.dtype:
            raise ArgumentTypeError(
                f"attention takes q, k and v in {types}, all in the same type", expected=f"{types}, three times",
                got=", ".join(f"{each} {seen[each].dtype}" for each in ("q", "k", "v")),
                hint=CONVERSIONS.get(q.framework),
            )  # fmt: skip
    if "sinks" in seen and seen["sinks"].dtype not in (f32, bf16, f16):
        raise ArgumentTypeError(
            "`sinks` has the wrong type", expected="f32, bf16 or f16", got=seen["sinks"].dtype, code="wrong-type"
        )
    if len({(each.device, each.index) for each in seen.values()}) > 1:
        raise ArgumentError(
            "the arguments of attention are on different devices", expected="all on one GPU, or all on the CPU",
            got=", ".join(f"`{name}` on {each.place}" for name, each in seen.items()), code="wrong-device"
        )  # fmt: skip


def fits_head(dim: int, bytes_: int) -> bool:
    """True if kernels support a head dimension with elements of this size: TMA must be able to load its rows."""
    return 0 < dim <= MOST_DIM and dim * bytes_ % TMA_BYTES == 0


def check_sizes(
    views: dict[str, ArrayView], given: dict[str, tuple[int, ...]], layout: str, *, paged: bool = False
) -> None:
    """Raise ArgumentError unless the sizes of q, k and v agree. `paged`: k and v have pages instead of a batch."""
    q, k, v = (views[name].shape for name in ("q", "k", "v"))
    agreeing = (paged or q[0] == k[0]) and k[0] == v[0] and k[1:3] == v[1:3] and q[3] == k[3]
    if not agreeing:
        raise ArgumentError(
            "q, k and v do not go together" + (f" in the layout {layout!r}" if layout in LAYOUTS else ""),
            expected="one batch; k and v of one length and one number of heads; q and k of one head dimension",
            got=", ".join(f"{name} {shape}" for name, shape in given.items()),
            hint={"bhsd": 'the other layout is layout="bshd"', "bshd": 'the other layout is layout="bhsd"'}.get(layout),
        )
    if k[2] == 0 or q[2] % k[2]:
        if q[2]:
            raise ArgumentError(
                "query heads are shared out evenly among key heads", expected="a multiple of the key heads",
                got=f"{q[2]} query heads, {k[2]} key heads",
            )  # fmt: skip
    check_lengths({"q": q[1], "k": k[1]})
    for name, dim in (("q and k", q[3]), ("v", v[3])):
        if not fits_head(dim, views["q"].dtype.bytes):
            raise ArgumentError(
                f"attention does not support the head dimension of {name}",
                expected=f"a multiple of {TMA_BYTES // views['q'].dtype.bytes} up to {MOST_DIM}", got=dim,
                hint=None if dim > MOST_DIM else "pad it with zeros, and pass scale= of the unpadded one",
            )  # fmt: skip
    for name in ("q", "k", "v"):
        array = views[name]
        if array.shape[3] > 1 and array.strides[3] != array.dtype.bytes and array.size:
            raise ArgumentError(
                f"the head dimension of `{name}` is not contiguous",
                expected=f"a stride of {counted(array.dtype.bytes, 'byte')}",
                got=counted(array.strides[3], "byte"), hint="call .contiguous()", code="wrong-layout"
            )  # fmt: skip


def _edges(causal: bool | str, window: Any, queries: int, keys: int, rows: int) -> Edges:
    """Return (first, last): query i sees keys i + first to i + last; None for no edge. rows: total of q and k."""
    offset = 0 if causal == "top-left" else keys - queries
    left, right = (within(edge, rows) for edge in window_of(window, bool(causal)))
    if causal:
        right = 0 if right is None else min(right, 0)
    return (None if left is None else offset - left), (None if right is None else offset + right)


def window_of(window: Any, causal: bool) -> Edges:
    """Return how many keys before and after its own a query sees, None for no limit. Raises ArgumentError."""
    if window is None:
        return None, None
    pair = (window, 0 if causal else window) if isinstance(window, Integral) else window
    if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not all(_edge(each) for each in pair):
        raise ArgumentError(
            "`window` is how many keys before and after its own a query sees",
            expected="a number, or (left, right), where None or -1 means no limit", got=repr(window),
        )  # fmt: skip
    left, right = (None if each in (None, -1) else int(each) for each in pair)
    return left, right


def _edge(value: Any) -> bool:
    return value is None or (isinstance(value, Integral) and not isinstance(value, bool) and -1 <= int(value) < 1 << 30)
