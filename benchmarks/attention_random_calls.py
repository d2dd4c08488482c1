"""Random calls of attention: settings of a kernel, then arrays, lengths and memory layouts for it, and the comparison.

A setting needs a kernel of its own; calls that share it differ in what does not change the kernel's text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import warploom
from benchmarks.attention_random_arrays import (
    DATA,
    LENGTHS,
    MASKS,
    MEMORY,
    MOST,
    Draw,
    hidden,
    mask_function,
    placed,
    score_function,
    values,
)
from benchmarks.attention_random_exact import LOGARITHM, SMALLEST, Exact, Rules, folded, off_by

Tensor = torch.Tensor
Setting = dict[str, Any]
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
DIMS = 8, 16, 24, 40, 56, 64, 72, 80, 88, 96, 104, 120, 128, 136, 160, 184, 192, 200, 240, 256
HEADS = (1, 1), (2, 1), (3, 3), (4, 2), (6, 2), (8, 1)
PAGES = 0, 0, 1, 3, 16, 24, 64, 100, 256
FAMILIES = "forward", "varlen", "functions", "decode", "backward", "varlen backward", "functions backward"
MOST_SCORES = 2_000_000
"""Of all heads, beyond which there is one batch: float64 takes more memory than attention."""


def setting(draw: Draw, family: str) -> Setting:
    """What determines a kernel, apart from functions, which are drawn with a call."""
    gradients, packed = family.endswith("backward"), family.startswith("varlen")
    kinds = ["bf16", "bf16", "f16"] if gradients or "functions" in family else ["bf16", "f16", "e4m3"]
    kind = draw.one_of(kinds)
    cache = family == "decode" and draw.one_of(("", "e4m3"))
    kind = draw.one_of(("bf16", "f16")) if family == "decode" else kind
    dims = [dim for dim in DIMS if dim % 16 == 0] if "e4m3" in (kind, cache) else DIMS
    dim = draw.one_of(dims)
    found: Setting = {
        "family": family, "kind": kind, "dims": (dim, dim if draw.happens(0.6) else draw.one_of(dims)),
        "heads": draw.one_of(HEADS), "sinks": draw.happens(0.25), "softcap": draw.happens(0.15),
        "layout": "bhsd" if packed else draw.one_of(("bhsd", "bshd")),
    }  # fmt: skip
    if family == "decode":
        return found | {
            "cache": cache, "page": draw.one_of(PAGES), "tokens": draw.one_of((1, 1, 1, 2, 4, 5, 16)),
            "causal": draw.happens(0.8), "window": draw.happens(0.25), "arrays": draw.happens(0.5),
        }  # fmt: skip
    masks = [mask for mask in MASKS if not (packed and mask == "top-left")]
    found["mask"] = draw.one_of(masks)
    if kind == "e4m3":
        found |= {"arrays": draw.happens(0.5), "fast": draw.happens(0.3)}
    if family.startswith("functions"):
        functions = draw.one_of(("score", "mask", "both", "blocks", "blocks and score"))
        found |= {"functions": functions, "softcap": False}
        found |= {"mask": "full", "sinks": False, "layout": "bhsd"} if "blocks" in functions else {}
        found["flex"] = "blocks" in functions or draw.happens(0.5)
        if found["flex"]:
            found |= {"mask": "full", "sinks": False, "layout": "bhsd"}
        found["score"] = draw.one_of(("slope", "table", "tanh", "some", "far"))
        found["block"] = draw.one_of(((128, 128), (128, 128), (64, 64), (128, 64), (256, 128), (48, 80)))
    return found


# -- calls of dense and packed sequences --------------------------------------------------------------------------


def dense(draw: Draw, of: Setting) -> Iterator[tuple[str, str]]:
    """Make a call of `attention`, `flex_attention` or `attention_varlen`: what is wrong, by the name of a result."""
    dtype, (heads, shared), (dim, value_dim) = TYPES[of["kind"]], of["heads"], of["dims"]
    packed, gradients = of["family"].startswith("varlen"), of["family"].endswith("backward")
    sizes = [(draw.length(), draw.length()) for _ in range(draw.one_of((1, 2, 3, 5)) if packed else 1)]
    if packed and draw.happens(0.4):
        sizes.insert(draw.one_of((0, 1)), (draw.one_of((0, 3)), draw.one_of((0, 5))))
    batch = 1 if packed else draw.one_of((1, 1, 2, 3))
    rows, columns = (sum(each) for each in zip(*sizes, strict=True))
    batch = 1 if heads * rows * columns > MOST_SCORES else batch
    data = of["data"] = draw.one_of(DATA)
    if data == "hidden keys" and (gradients or of.get("functions")):  # a gradient times an infinite key is NaN
        data = of["data"] = "normal"
    if data == "large" and gradients and dtype is torch.float16:  # dS overflows where V is near the end of the range
        data = of["data"] = "wide"
    q, k, v = values(draw, data, dtype, [(batch, heads, rows, dim), (batch, shared, columns, dim),
                                         (batch, shared, columns, value_dim)])  # fmt: skip
    of["sizes"], of["batch"], of["memory"] = sizes, batch, draw.one_of(MEMORY)
    edges = draw.one_of((0, 1, 40, 200)), draw.one_of((0, 5, 90))
    scale = draw.one_of((None, None, 0.05)) if data != "large" else None
    options: dict[str, Any] = {"scale": scale}
    cap = options["softcap"] = draw.one_of((3.0, 30.0)) if of["softcap"] else None
    sinks = draw.one_of((1.0, 8.0)) * draw.normal(heads) if of["sinks"] else None
    factors = {}
    if of["kind"] == "e4m3":
        factors = {name: 0.5 + draw.normal(batch, count).abs() for name, count in
                   (("q_scale", heads), ("k_scale", shared), ("v_scale", shared))}  # fmt: skip
        if not of["arrays"]:
            factors = {name: x[:1, :1].expand_as(x) for name, x in factors.items()}
        options |= {
            name: x.float().contiguous() if of["arrays"] else float(x[0, 0].float()) for name, x in factors.items()
        }
        options["fast_accumulation"] = of["fast"]
    functions = with_functions(draw, of, batch, rows, columns) if of.get("functions") else {}
    if sinks is not None:
        options["sinks"] = sinks.float()
    arrays = [placed(x, of["memory"], of["layout"]).detach().requires_grad_(gradients) for x in (q, k, v)]
    masked = hidden(of["mask"], edges, 1, 1, draw.device)[1]
    options = {name: x for name, x in options.items() if x is not None} | masked
    out, lse = launched(of, arrays, options, functions, sizes, draw)
    out_dtype = torch.bfloat16 if of["kind"] == "e4m3" else dtype
    if not packed and of["layout"] == "bshd":
        out = out.transpose(1, 2)
    out = out.transpose(0, 1)[None] if packed else out
    yield "type", "" if out.dtype == out_dtype else str(out.dtype)
    doubles = [x.double() for x in (q, k, v)]
    for name, at in (("q_scale", 0), ("k_scale", 1), ("v_scale", 2)):
        if name in factors:
            doubles[at] = doubles[at] * factors[name].float().double()[:, :, None, None]
    given = gradients and (draw.normal(*out.shape).to(out.dtype), draw.normal(*lse.shape).float())
    with_lse = gradients and draw.happens(0.4)
    found_grads: list[Tensor] = []
    if gradients:
        wanted = [out, lse] if with_lse else [out]
        found_grads = list(torch.autograd.grad(wanted, arrays, given[: len(wanted)]))
        found_grads = [x.transpose(1, 2) if of["layout"] == "bshd" else x for x in found_grads]
    row = column = 0
    for queries, keys in sizes:
        mine, theirs = slice(row, row + queries), slice(column, column + keys)
        row, column = row + queries, column + keys
        unseen = hidden(of["mask"], edges, queries, keys, draw.device)[0]
        for each in ("mask_mod", "block_mask"):
            if (function := functions.get(each)) is not None:
                i, j = (torch.arange(n, device=draw.device) for n in (queries, keys))
                h = torch.arange(heads, device=draw.device).view(-1, 1, 1)
                sees = getattr(function, "mask_mod", function)(0, h, i[:, None], j[None])
                unseen = unseen | ~sees
        rules = Rules(
            dim**-0.5 if scale is None else scale, unseen.expand(batch, heads, queries, keys), cap,
            None if sinks is None else sinks.float().double(), functions.get("score_mod"), of.get("approximate", 0.0),
        )  # fmt: skip
        exact = Exact.of(doubles[0][:, :, mine], doubles[1][:, :, theirs], doubles[2][:, :, theirs], rules, dtype)
        yield from compared(exact, out[:, :, mine], lse[:, :, mine], of)
        if gradients:
            got = out.detach()[:, :, mine].double()
            of_lse = given[1][:, :, mine].double() if with_lse else None
            for (name, (right, bound)), array in zip(
                exact.gradients(got, given[0][:, :, mine].double(), of_lse).items(), found_grads, strict=True
            ):
                part = array[:, :, mine if name == "dq" else theirs]
                right, bound = (x if name == "dq" else folded(x, shared) for x in (right, bound))
                yield name, off_by(part, right, bound, MOST[dtype] * 0.99)


def with_functions(draw: Draw, of: Setting, batch: int, queries: int, keys: int) -> dict[str, Any]:
    """The functions of a call by argument."""
    found: dict[str, Any] = {}
    if "score" in of["functions"] or of["functions"] == "both":
        found["score_mod"], of["approximate"] = score_function(draw, of["score"], of["heads"][0])
    if of["functions"] in ("mask", "both"):
        found["mask_mod"] = mask_function(draw, queries, keys)
    if "blocks" in of["functions"]:
        from torch.nn.attention.flex_attention import create_block_mask

        found["block_mask"] = create_block_mask(
            mask_function(draw, queries, keys), None, of["heads"][0], queries, keys,
            device=draw.device, BLOCK_SIZE=of["block"],
        )  # fmt: skip
    return found


def launched(
    of: Setting, arrays: list[Tensor], options: dict[str, Any], functions: dict[str, Any],
    sizes: list[tuple[int, int]], draw: Draw,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The result, and the logarithms of its sums."""
    if of["family"].startswith("varlen"):
        ends = [
            torch.tensor(np.cumsum([0, *each]), dtype=torch.int32, device=draw.device)
            for each in zip(*sizes, strict=True)
        ]
        packed = [x[0].transpose(0, 1) for x in arrays]
        return warploom.attention_varlen(*packed, *ends, **options, return_lse=True)  # type: ignore[no-any-return]
    if of.get("flex"):
        from warploom.torch import flex_attention

        block = functions.get("block_mask", functions.get("mask_mod"))
        return flex_attention(  # type: ignore[no-any-return]
            *arrays, functions.get("score_mod"), block, options.get("scale"), enable_gqa=True, return_lse=True
        )
    return warploom.attention(*arrays, **options, **functions, layout=of["layout"], return_lse=True)  # type: ignore[no-any-return]


def compared(exact: Exact, out: Tensor, lse: Tensor, of: Setting) -> Iterator[tuple[str, str]]:
    """What is wrong with a result and its logarithms."""
    out, lse = out.detach(), lse.detach()
    most = torch.finfo(out.dtype).max * 0.99
    yield "out", off_by(out, exact.out, exact.bound(out.dtype), most)
    yield "lse", off_by(lse, exact.lse, LOGARITHM * exact.lse.abs().clamp(min=1) + exact.off[..., 0])
    if of["kind"] != "e4m3" and not of.get("cache") and bool((exact.out.abs() < most).all()):
        error, typical = float((out.double() - exact.out).norm()), float(exact.typical(out.dtype))
        least = math.sqrt(out.numel()) * max(torch.finfo(out.dtype).smallest_normal * 2.0**-6, SMALLEST)
        yield "norm", "" if not error > typical + least else f"{error:.3g}, where {typical:.3g} is typical"


# -- decoding ----------------------------------------------------------------------------------------------------------


def decode(draw: Draw, of: Setting) -> Iterator[tuple[str, str]]:
    """Make a call of `attention_decode`: what is wrong, by the name of a result."""
    dtype, (heads, shared), (dim, value_dim) = TYPES[of["kind"]], of["heads"], of["dims"]
    cached = TYPES[of["cache"] or of["kind"]]
    lengths = [draw.one_of((0, 1, *LENGTHS[draw.size])) for _ in range(draw.one_of((1, 2, 5)))]
    page, room = of["page"], max(1, max(lengths)) + draw.one_of((0, 5, 100))
    data, of["lengths"], of["room"] = draw.one_of([x for x in DATA if x != "hidden keys"]), lengths, room
    of["data"], batch, size = data, len(lengths), page or room
    pages = -(-room // size)
    q, k, v = values(draw, data, cached, [(batch, heads, of["tokens"], dim), (batch * pages, shared, size, dim),
                                          (batch * pages, shared, size, value_dim)])  # fmt: skip
    q = q.to(dtype)
    table = torch.randperm(batch * pages, generator=draw.numbers).view(batch, pages).int().to(draw.device)
    options: dict[str, Any] = {"causal": of["causal"], "constant_lengths": draw.happens(0.3)}
    options |= {"table": table} if page else {}
    window = options["window"] = draw.one_of((0, 40, 200)) if of["window"] and of["causal"] else None
    cap = options["softcap"] = draw.one_of((3.0, 30.0)) if of["softcap"] else None
    sinks = draw.one_of((1.0, 8.0)) * draw.normal(heads) if of["sinks"] else None
    factors = {name: 0.5 + draw.normal(batch, shared).abs() for name in ("k_scale", "v_scale")} if of["cache"] else {}
    if factors and not of["arrays"]:
        factors = {name: x[:1, :1].expand_as(x) for name, x in factors.items()}
    options |= {name: x.float().contiguous() if of["arrays"] else float(x[0, 0].float()) for name, x in factors.items()}
    options |= {} if sinks is None else {"sinks": sinks.float()}
    where = [table[at].long() if page else torch.tensor([at], device=draw.device) for at in range(batch)]
    doubles = [x.double() for x in (k, v)]
    if not of["cache"] and draw.happens(0.5):  # past the end of a sequence anything may be
        for at, length in enumerate(lengths):
            for x in (k, v):
                gathered = x[where[at]].transpose(0, 1).flatten(1, 2)
                gathered[:, length:] = torch.nan
                x[where[at]] = gathered.unflatten(1, (len(where[at]), size)).transpose(0, 1)
    arrays = [placed(x, draw.one_of(MEMORY[:3]), of["layout"]) for x in (q, k, v)]
    ends = torch.tensor(lengths, dtype=torch.int32, device=draw.device)
    options = {name: x for name, x in options.items() if x is not None}
    out, lse = warploom.attention_decode(*arrays, ends, **options, layout=of["layout"], return_lse=True)
    out = out.transpose(1, 2) if of["layout"] == "bshd" else out
    for at, length in enumerate(lengths):
        keys, seen = (x[where[at]].transpose(0, 1).flatten(1, 2)[None, :, :length] for x in doubles)
        if factors:
            keys, seen = (x * factors[name][at].float().double()[None, :, None, None]
                          for x, name in ((keys, "k_scale"), (seen, "v_scale")))  # fmt: skip
        i = torch.arange(of["tokens"], device=draw.device)[:, None]
        j = torch.arange(length, device=draw.device)[None]
        last = i + length - of["tokens"] if of["causal"] else i + length
        unseen = (j > last) | (j < last - (1 << 30 if window is None else window))
        rules = Rules(dim**-0.5, unseen, cap, None if sinks is None else sinks.float().double())
        multiplied = torch.float16 if of["cache"] else dtype
        exact = Exact.of(q[at : at + 1].double(), keys, seen, rules, multiplied)
        yield from compared(exact, out[at : at + 1], lse[at : at + 1], of)


def wrong(draw: Draw, of: Setting) -> dict[str, str]:
    """Make one call; what is wrong with it. `of` gets what was drawn for the call."""
    return {name: what for name, what in (decode if of["family"] == "decode" else dense)(draw, of) if what}
