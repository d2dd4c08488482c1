"""The options of attention, and calls with a choice of them: `attention_space` assembles those, and tests emulate some.

An axis is one option, or several that depend on each other: all that describes e4m3 is one axis, for instance.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

import warploom
from benchmarks.covering import Excluded, Member

TYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "e4m3": ml_dtypes.float8_e4m3fn}
DIMS = ("40", "64", "72", "80", "96", "120", "128", "192", "192/128", "256", "64/128", "128/64", "16/240")
"""Head dimensions, of Q and K and of V where they differ."""
ODD = [each for each in DIMS if any(int(dim) % 16 for dim in each.split("/"))]
"""Those that e4m3 does not have."""
MASKS: dict[str, dict[str, Any]] = {
    "full": {}, "causal": {"causal": True}, "top-left": {"causal": "top-left"}, "left": {"window": (40, None)},
    "right": {"window": (None, 5)}, "window": {"window": (30, 9)}, "causal window": {"causal": True, "window": 50},
}  # fmt: skip
FUNCTIONS: dict[str, tuple[str, ...]] = {
    "none": (), "score": ("slope",), "mask": ("document",), "both": ("slope", "document"),
    "blocks of 128": ("128x128",), "blocks of 64": ("64x64",), "blocks of 48": ("48x48",),
    "blocks, no function": ("256x128", "whole"), "blocks and both": ("128x128", "slope", "document"),
}  # fmt: skip
"""Functions of scores and masks, and block masks with and without them."""
BLOCKS = [name for name in FUNCTIONS if name.startswith("blocks")]
SCORES = [name for name, parts in FUNCTIONS.items() if "slope" in parts]
EIGHT = ["e4m3", "e4m3 numbers", "e4m3 arrays", "e4m3 fast", "e4m3 arrays fast"]
FLAGS = (False, True)
LENGTHS = 129, 200
"""Queries and keys of a call whose launches are only recorded."""
DOCUMENTS = np.repeat(np.arange(64, dtype=np.int32), 50)
SLOPES = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
TOP_LEFT = {"packed": [True], "mask": ["top-left"]}


@dataclass(frozen=True)
class Space:
    """The axes of a kind of call, and what no member of it has."""

    axes: Mapping[str, Sequence[Any]]
    excluded: Sequence[Excluded] = ()


_DENSE: list[Excluded] = [
    {"numbers": EIGHT, "dims": ODD},
    {"functions": SCORES, "softcap": [True]},
    {"functions": BLOCKS, "mask": [name for name in MASKS if name != "full"]},
    {"functions": [name for name in FUNCTIONS if name != "none"], "packed": [True]},
    TOP_LEFT,
]
FAMILIES = {
    "forward": Space({
        "dims": DIMS, "numbers": ["bf16", "f16", *EIGHT], "packed": FLAGS, "mask": list(MASKS), "softcap": FLAGS,
        "sinks": FLAGS, "functions": list(FUNCTIONS),
    }, _DENSE),
    "backward": Space({
        "dims": DIMS, "numbers": ["bf16", "f16"], "packed": FLAGS, "mask": list(MASKS), "softcap": FLAGS,
        "functions": [name for name in FUNCTIONS if name not in ("blocks of 64", "blocks of 48")], "any order": FLAGS,
        "lse_grad": FLAGS, "layout": ["bhsd", "bshd"],
    }, [*_DENSE[1:], {"packed": [True], "any order": [True]}, {"packed": [True], "layout": ["bshd"]}]),
    "decode": Space({
        "dims": DIMS, "numbers": ["bf16", "f16", "bf16 e4m3", "f16 e4m3 numbers", "bf16 e4m3 arrays"],
        "page": [0, 1, 4, 16, 24, 64, 256], "rows": ["1x1", "1x4", "1x8", "4x4", "5x4", "16x3"],
        "room": [256, 1 << 13, 1 << 16, 1 << 19], "window": FLAGS, "softcap": FLAGS, "sinks": FLAGS,
        "constant_lengths": FLAGS,
    }, [{"numbers": ["bf16 e4m3", "f16 e4m3 numbers", "bf16 e4m3 arrays"], "dims": ODD}]),
}  # fmt: skip
"""`rows` of decoding: tokens and query heads for each key head. `room`: keys of all sequences together."""


def name_of(member: Member) -> str:
    """The member in words."""
    words = [(name, value) for name, value in member.items() if value not in (False, "none", "full")]
    return " ".join(name if value is True else f"{name}={_spelled(value)}" for name, value in words)


def _spelled(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value).replace(" ", "-")


def widths(member: Member) -> tuple[int, int]:
    """Columns of Q and K, and of V."""
    first, _, second = member["dims"].partition("/")
    return int(first), int(second or first)


def slope(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + SLOPES[head] * (key - query)


def document(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return DOCUMENTS[query] == DOCUMENTS[key]


def visible(query: Any, key: Any) -> Any:
    return query >= key - 20


def whole(query: Any, key: Any) -> Any:
    """The blocks that a block mask without a function has."""
    return key < 128


@dataclass
class Call:
    """The arguments of a call: `arrays` by position, `options` by name; `sizes`: pairs of queries and keys."""

    arrays: list[Any]
    options: dict[str, Any]
    sizes: list[tuple[int, int]] = field(default_factory=list)
    heads: tuple[int, int] = (2, 1)


def dense(member: Member, queries: int, keys: int, heads: tuple[int, int] = (2, 1), seed: int = 0) -> Call:
    """A call of `attention` or, with `packed`, of `attention_varlen`."""
    draw = np.random.default_rng(seed)
    dim, value_dim = widths(member)
    kind, *eight = str(member["numbers"]).split()
    sizes = [(queries, keys), (0, 3), (2, 0), (9, 7)] if member["packed"] else [(queries, keys)]
    rows, columns = (sum(each) for each in zip(*sizes, strict=True))
    shapes = (heads[0], rows, dim), (heads[1], columns, dim), (heads[1], columns, value_dim)
    arrays = [draw.standard_normal((1, *shape)).astype(TYPES[kind]) for shape in shapes]
    options: dict[str, Any] = dict(MASKS[member["mask"]])
    options |= {"softcap": 3.0} if member["softcap"] else {}
    options |= {"sinks": draw.standard_normal(heads[0]).astype(np.float32)} if member.get("sinks") else {}
    options |= {"fast_accumulation": True} if "fast" in eight else {}
    names = "q_scale", "k_scale", "v_scale"
    if "numbers" in eight:
        options |= dict(zip(names, (2.0, 0.5, 3.0), strict=True))
    if "arrays" in eight:
        counts = heads[0], heads[1], heads[1]
        options |= {
            name: draw.uniform(0.5, 2, (1, n)).astype(np.float32) for name, n in zip(names, counts, strict=True)
        }
    if member["packed"]:
        ends = [np.cumsum([0, *each], dtype=np.int32) for each in zip(*sizes, strict=True)]
        return Call([*(np.ascontiguousarray(x[0].swapaxes(0, 1)) for x in arrays), *ends], options, sizes, heads)
    parts = FUNCTIONS[member["functions"]]
    options |= {"score_mod": slope} if "slope" in parts else {}
    if member["functions"] in BLOCKS:
        options["block_mask"] = block_mask(parts, queries, keys)
        arrays = [warploom_tensor(x) for x in arrays]
        options |= {name: warploom_tensor(x) for name, x in options.items() if isinstance(x, np.ndarray)}
    elif "document" in parts:
        options["mask_mod"] = document
    return Call(arrays, options, sizes, heads)


def block_mask(parts: Sequence[str], queries: int, keys: int) -> Any:
    """A block mask of torch, of blocks of the given size."""
    import torch

    height, width = map(int, parts[0].split("x"))
    function = document if "document" in parts else lambda batch, head, query, key: visible(query, key)
    tall, wide = -(-queries // height), -(-keys // width)
    q, k = np.ogrid[:queries, :keys]
    if "whole" in parts:
        seen = np.broadcast_to(whole(q, k), (queries, keys))
    else:
        seen = np.broadcast_to(np.asarray(function(0, 0, q, k)), (queries, keys))
    padded = np.zeros((tall * height, wide * width), bool)
    padded[:queries, :keys] = seen
    tiles = padded.reshape(tall, height, wide, width).transpose(0, 2, 1, 3)
    some, all_ = tiles.any((2, 3)), tiles.all((2, 3))

    def listed(kinds: np.ndarray) -> tuple[Any, Any]:
        order = np.argsort(~kinds, axis=1, kind="stable").astype(np.int32)
        return torch.from_numpy(kinds.sum(1).astype(np.int32)[None, None]), torch.from_numpy(order[None, None])

    if "whole" in parts:
        counts, indices = listed(some)
        full = None, None
        function = None
    else:
        (counts, indices), full = listed(some & ~all_), listed(all_)
    return SimpleNamespace(
        kv_num_blocks=counts, kv_indices=indices, full_kv_num_blocks=full[0], full_kv_indices=full[1],
        BLOCK_SIZE=(height, width), mask_mod=function, seq_lengths=(queries, keys),
    )  # fmt: skip


def warploom_tensor(array: np.ndarray) -> Any:
    """A torch tensor on the same memory."""
    torch = sys.modules["torch"]
    names = {"bfloat16": torch.bfloat16, "float8_e4m3fn": torch.float8_e4m3fn}
    found = names.get(array.dtype.name)
    if found is None:
        return torch.from_numpy(np.ascontiguousarray(array))
    raw = array.view(np.uint8 if array.dtype.itemsize == 1 else np.int16)
    return torch.from_numpy(np.ascontiguousarray(raw)).view(found)


def forward(member: Member) -> None:
    call = dense(member, *LENGTHS)
    (warploom.attention_varlen if member["packed"] else warploom.attention)(*call.arrays, **call.options)


def backward(member: Member) -> None:
    call = dense(member, *LENGTHS)
    gradients(member, call, *results(member, call))


def results(member: Member, call: Call) -> tuple[Any, Any, Any]:
    """The result, its logarithms and the gradient of the result of a call that did not run: memory for them."""
    q, v = call.arrays[0], call.arrays[2]
    empty = np.zeros if isinstance(q, np.ndarray) else sys.modules["torch"].zeros
    out = empty((*q.shape[:-1], v.shape[-1]), dtype=q.dtype)
    lse = (1, call.heads[0], q.shape[0]) if member["packed"] else q.shape[:-1]
    float32 = np.float32 if isinstance(q, np.ndarray) else sys.modules["torch"].float32
    return out, empty(lse, dtype=float32), out


def gradients(member: Member, call: Call, out: Any, lse: Any, grad: Any, lse_grad: Any = None) -> tuple[Any, ...]:
    """The gradients of a call."""
    more = dict(call.options)
    if member["lse_grad"]:
        more["lse_grad"] = lse if lse_grad is None else lse_grad
    if member["packed"]:
        return warploom.attention_varlen_backward(*call.arrays, out, lse, grad, **more)
    arrays, layout = [*call.arrays, out], member["layout"]
    if layout == "bshd":
        *arrays, grad = (x.swapaxes(1, 2) for x in (*arrays, grad))
    q, k, v, out = arrays
    found = warploom.attention_backward(
        q, k, v, out, lse, grad, layout=layout, deterministic=not member["any order"], **more
    )  # fmt: skip
    return found if layout == "bhsd" else tuple(x.swapaxes(1, 2) for x in found)


def cache(member: Member, lengths: Sequence[int], room: int, kv_heads: int = 2, seed: int = 0) -> Call:
    """A call of `attention_decode` on sequences of these lengths, each with room for so many keys."""
    draw = np.random.default_rng(seed)
    dim, value_dim = widths(member)
    kind, *eight = str(member["numbers"]).split()
    cached = TYPES["e4m3" if eight else kind]
    tokens, group = map(int, member["rows"].split("x"))
    batch, page = len(lengths), member["page"]
    heads, size = group * kv_heads, page or room
    pages = -(-room // size)
    q = draw.standard_normal((batch, heads, tokens, dim)).astype(TYPES[kind])
    drawn = room <= 1 << 10  # longer ones are only recorded
    shapes = [(batch * pages, kv_heads, size, columns) for columns in (dim, value_dim)]
    k, v = (draw.standard_normal(x).astype(cached) if drawn else np.zeros(x, cached) for x in shapes)
    options: dict[str, Any] = {"constant_lengths": member["constant_lengths"]}
    options |= {"table": draw.permutation(batch * pages).reshape(batch, pages).astype(np.int32)} if page else {}
    options |= {"window": 40} if member["window"] else {}
    options |= {"softcap": 3.0} if member["softcap"] else {}
    options |= {"sinks": draw.standard_normal(heads).astype(np.float32)} if member["sinks"] else {}
    if "numbers" in eight:
        options |= {"k_scale": 0.5, "v_scale": 3.0}
    if "arrays" in eight:
        scales = draw.uniform(0.5, 2, (2, batch, kv_heads)).astype(np.float32)
        options |= {"k_scale": scales[0].copy(), "v_scale": scales[1].copy()}
    return Call([q, k, v, np.array(lengths, np.int32)], options, [(tokens, n) for n in lengths], (heads, kv_heads))


def decode(member: Member) -> None:
    room = member["room"]
    batch = 1 if room <= 1 << 13 else room >> 13
    call = cache(member, [room // batch] * batch, room // batch)
    warploom.attention_decode(*call.arrays, **call.options)


CALLS: dict[str, Callable[[Member], None]] = {"forward": forward, "backward": backward, "decode": decode}
