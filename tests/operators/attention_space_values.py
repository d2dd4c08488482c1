"""Members of the space of attention's options, run in the emulator and in float64."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

import warploom
from benchmarks.attention_space_calls import (
    BLOCKS,
    DOCUMENTS,
    FAMILIES,
    FUNCTIONS,
    MASKS,
    SLOPES,
    Call,
    Member,
    cache,
    dense,
    gradients,
    visible,
    whole,
)
from benchmarks.covering import cover

SIZES = ((1, 63), (63, 65), (65, 129), (129, 64), (64, 1))
"""Queries and keys."""
HEADS = ((1, 1), (2, 1), (2, 2))
ERRORS = {"bf16": 4e-3, "f16": 6e-4, "e4m3": 4e-2}
"""Of a result or a gradient, relative to its norm: the rounding of P and of the result."""
CANCELLED = 1e-3
"""Least norm of a gradient that errors are relative to, in units of what its differences cancel."""
SCORES = 1e-5, 2e-2
"""Of a logarithm, without and with a softcap, whose tanh.approx has 2^-11."""
SMALL: dict[str, dict[str, Any]] = {
    "forward": {
        "dims": ("40", "64", "80", "128/64", "192/128"), "numbers": ("bf16", "f16", "e4m3 numbers", "e4m3 arrays fast"),
        "mask": [name for name in MASKS if name != "right"], "functions": ("none", "both", *BLOCKS[:3]), "sizes": SIZES,
        "heads": HEADS,
    },
    "backward": {
        "dims": ("40", "64", "128/64", "192/128"), "mask": [name for name in MASKS if name != "right"],
        "functions": ("none", "both", "blocks of 128", "blocks and both"), "sizes": SIZES, "heads": HEADS,
    },
    "decode": {
        "dims": ("40", "64", "128/64", "192/128"), "numbers": ("bf16", "f16 e4m3 numbers", "bf16 e4m3 arrays"),
        "page": (0, 1, 16, 24, 64), "rows": ("1x1", "1x4", "4x4", "5x4", "16x3"), "room": (0,), "causal": (True, False),
        "lengths": ((1, 63), (65, 0), (129,), (5, 1, 64)),
    },
}  # fmt: skip
"""Axes of what is emulated, where they are not those that are assembled."""


@dataclass
class Outcome:
    """What came out of the emulator by name, and what should have.

    sizes: norms that errors are relative to, where what should come out may be a difference of larger numbers.
    """

    found: dict[str, np.ndarray]
    wanted: dict[str, np.ndarray]
    sizes: dict[str, float] = field(default_factory=dict)

    def off(self, member: Member) -> dict[str, float]:
        """The names that are off by more than rounding explains, with their errors."""
        limit = ERRORS[str(member["numbers"]).split()[0]]
        errors = {}
        for name, wanted in self.wanted.items():
            found = np.asarray(self.found[name], np.float64)
            assert found.shape == wanted.shape, (name, found.shape, wanted.shape)
            finite = np.isfinite(wanted)
            most = limit
            if name == "lse":
                off = np.abs(found[finite] - wanted[finite]) / np.maximum(1, np.abs(wanted[finite]))
                error, most = float(off.max(initial=0)), SCORES[bool(member["softcap"])]
            else:
                size = self.sizes.get(name, float(np.linalg.norm(wanted[finite])))
                error = float(np.linalg.norm((found - wanted)[finite]) / max(size, 1e-30))
            if not error <= most or not np.array_equal(found[~finite], wanted[~finite]):
                errors[name] = error
        return errors


def small(family: str) -> list[Member]:
    """The members of a kind of call that are emulated."""
    space = FAMILIES[family]
    excluded = [*space.excluded, {"causal": [False], "window": [True]}]
    axes = {**space.axes, **SMALL[family]}
    return cover(axes, [rule for rule in excluded if set(rule) <= set(axes)])


def emulate(family: str, member: Member) -> Outcome:
    """Run a member's call with the sanitizer, which raises what it finds."""
    with warploom.config.override(emulator={"limit_s": 1e3, "check": True, "schedule": "random", "seed": 1}):
        return {"forward": _forward, "backward": _backward, "decode": _decode}[family](member)


# -- float64 ----------------------------------------------------------------------------------------------------------


def hidden(member: Member, queries: int, keys: int) -> np.ndarray:
    """The pairs of a query and a key that do not see each other."""
    q, k = np.indices((queries, keys))
    options = MASKS[member["mask"]]
    offset = 0 if options.get("causal") == "top-left" else keys - queries
    left, right = (options.get("window"), 0) if isinstance(options.get("window"), int) else options.get(
        "window", (None, None)
    )  # fmt: skip
    right = 0 if options.get("causal") else right
    found = np.zeros((queries, keys), bool)
    found |= False if left is None else k < q + offset - left
    found |= False if right is None else k > q + offset + right
    parts = FUNCTIONS[member.get("functions", "none")]
    found |= DOCUMENTS[q] != DOCUMENTS[k] if "document" in parts else False
    if member.get("functions") in BLOCKS and "document" not in parts:
        found |= ~(whole(q, k) if "whole" in parts else visible(q, k))
    return found


@dataclass
class Exact:
    """One head in float64; `p` and `slope` (of a capped score in its argument) are those that gradients need."""

    out: np.ndarray
    lse: np.ndarray
    p: np.ndarray
    slope: np.ndarray

    @classmethod
    def of(
        cls, q: Any, k: Any, v: Any, masked: np.ndarray, *, scale: float, cap: float | None, sink: float | None,
        bias: Any = 0.0,
    ) -> Exact:  # fmt: skip
        score = q @ k.T * scale
        slope = np.ones_like(score)
        if cap is not None:
            bent = np.tanh(score / cap)
            score, slope = cap * bent, 1 - bent**2
        score = np.where(masked, -np.inf, score + bias)
        top = score.max(1, initial=-np.inf if sink is None else sink)[:, None]
        base = np.where(np.isinf(top), 0, top)
        p = np.exp(score - base)
        total = p.sum(1, keepdims=True) + (0 if sink is None else np.exp(sink - base))
        with np.errstate(divide="ignore"):
            lse = (np.log(total) + base)[:, 0]
        p = p / np.where(total > 0, total, 1)
        return cls(p @ v, lse, p, slope)


def factors(options: dict[str, Any], name: str, batch: int, head: int) -> float:
    """The scale of a head of an e4m3 array."""
    found = options.get(name, 1.0)
    return float(found) if isinstance(found, float) else float(np.asarray(found)[batch, head])


def exact_heads(member: Member, call: Call) -> list[tuple[int, slice, slice, Exact]]:
    """Of each query head and sequence: the head, its rows of queries and of keys, and the result in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in plain_arrays(member, call))
    sinks, found = call.options.get("sinks"), []
    group = call.heads[0] // call.heads[1]
    row = column = 0
    for queries, keys in call.sizes:
        mine, theirs = slice(row, row + queries), slice(column, column + keys)
        row, column = row + queries, column + keys
        i, j = np.indices((queries, keys))
        for head in range(call.heads[0]):
            shared = head // group
            scales = {name: factors(call.options, name, 0, head if name == "q_scale" else shared)
                      for name in ("q_scale", "k_scale", "v_scale")}  # fmt: skip
            slopes = SLOPES[head] * (j - i) if "slope" in FUNCTIONS[member["functions"]] else 0.0
            each = Exact.of(
                q[head, mine], k[shared, theirs], v[shared, theirs] * scales["v_scale"], hidden(member, queries, keys),
                scale=q.shape[-1] ** -0.5 * scales["q_scale"] * scales["k_scale"], cap=call.options.get("softcap"),
                sink=None if sinks is None else float(np.asarray(sinks)[head]), bias=slopes,
            )  # fmt: skip
            found.append((head, mine, theirs, each))
    return found


def plain_arrays(member: Member, call: Call) -> list[np.ndarray]:
    """q, k and v as (heads, rows, columns)."""
    arrays = [numpy_of(x) for x in call.arrays[:3]]
    return [x.swapaxes(0, 1) if member["packed"] else x[0] for x in arrays]


def numpy_of(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.float().numpy()


# -- calls ------------------------------------------------------------------------------------------------------------


def _run(member: Member, call: Call) -> tuple[Any, Any]:
    called = warploom.attention_varlen if member["packed"] else warploom.attention
    return called(*call.arrays, **call.options, return_lse=True)  # type: ignore[no-any-return]


def _forward(member: Member) -> Outcome:
    call = dense(member, *member["sizes"], heads=member["heads"])
    out, lse = (numpy_of(x) for x in _run(member, call))
    heads = out.swapaxes(0, 1) if member["packed"] else out[0]
    wanted, logarithms = np.zeros(heads.shape), np.zeros(lse[0].shape)
    for head, mine, _, each in exact_heads(member, call):
        wanted[head, mine], logarithms[head, mine] = each.out, each.lse
    return Outcome({"out": heads, "lse": lse[0]}, {"out": wanted, "lse": logarithms})


def _backward(member: Member) -> Outcome:
    call = dense(member, *member["sizes"], heads=member["heads"])
    q, k, v = (np.asarray(x, np.float64) for x in plain_arrays(member, call))
    draw = np.random.default_rng(9)
    exact, group = exact_heads(member, call), call.heads[0] // call.heads[1]
    out, lse = np.zeros((*q.shape[:2], v.shape[2])), np.zeros(q.shape[:2])
    grad, lse_grad = draw.standard_normal(out.shape), draw.standard_normal(lse.shape)
    kind = numpy_of(call.arrays[0][:0]).dtype if isinstance(call.arrays[0], np.ndarray) else None
    for head, mine, _, each in exact:
        out[head, mine], lse[head, mine] = each.out, each.lse
    given = [_as(member, call, x, kind) for x in (out, grad)]
    grad = np.asarray(numpy_of(given[1]), np.float64)
    grad = grad.swapaxes(0, 1) if member["packed"] else grad[0]
    logarithms, of_lse = (_like(call, x[None].astype(np.float32)) for x in (lse, lse_grad))
    found = gradients(member, call, given[0], logarithms, given[1], of_lse)
    wanted = {"dq": np.zeros(q.shape), "dk": np.zeros(k.shape), "dv": np.zeros(v.shape)}
    squares = dict.fromkeys(("dq", "dk"), 0.0)
    for head, mine, theirs, each in exact:
        shared = head // group
        g = grad[head, mine]
        delta = (g * each.out).sum(1) - (lse_grad[head, mine] if member["lse_grad"] else 0)
        dp, weight = g @ v[shared, theirs].T, each.p * each.slope * q.shape[2] ** -0.5
        ds, larger = weight * (dp - delta[:, None]), weight * (np.abs(dp) + np.abs(delta)[:, None])
        squares["dq"] += float(np.sum((larger @ np.abs(k[shared, theirs])) ** 2))
        squares["dk"] += float(np.sum((larger.T @ np.abs(q[head, mine])) ** 2))
        wanted["dq"][head, mine] = ds @ k[shared, theirs]
        wanted["dk"][shared, theirs] += ds.T @ q[head, mine]
        wanted["dv"][shared, theirs] += each.p.T @ g
    arrays = [numpy_of(x) for x in found]
    arrays = [x.swapaxes(0, 1) if member["packed"] else x[0] for x in arrays]
    sizes = {name: max(float(np.linalg.norm(wanted[name])), CANCELLED * each**0.5) for name, each in squares.items()}
    return Outcome(dict(zip(wanted, arrays, strict=True)), wanted, sizes)


def _as(member: Member, call: Call, array: np.ndarray, kind: Any) -> Any:
    """An array (heads, rows, columns) like the operands of the call."""
    placed = array.swapaxes(0, 1) if member["packed"] else array[None]
    if kind is not None:
        return np.ascontiguousarray(placed).astype(kind)
    import torch

    return torch.from_numpy(np.ascontiguousarray(placed)).to(call.arrays[0].dtype)


def _like(call: Call, array: np.ndarray) -> Any:
    if isinstance(call.arrays[0], np.ndarray):
        return array
    import torch

    return torch.from_numpy(array)


def _decode(member: Member) -> Outcome:
    lengths = member["lengths"]
    call = cache(member, lengths, 150)
    call.options |= {} if member["causal"] else {"causal": False}
    out, lse = warploom.attention_decode(*call.arrays, **call.options, return_lse=True)
    q, k, v = (np.asarray(x, np.float64) for x in call.arrays[:3])
    table, (tokens, _) = call.options.get("table"), call.sizes[0]
    wanted, logarithms = np.zeros(out.shape), np.zeros(lse.shape)
    group = call.heads[0] // call.heads[1]
    for number, length in enumerate(lengths):
        for head in range(call.heads[0]):
            shared = head // group
            keys, values = (
                (x[number, shared] if table is None else x[table[number], shared].reshape(-1, x.shape[-1]))[:length]
                for x in (k, v)
            )
            i, j = np.indices((tokens, length))
            last = i + length - tokens if member["causal"] else i + length
            masked = (j > last) | (j < last - call.options.get("window", 1 << 30))
            scales = {name: factors(call.options, name, number, shared) for name in ("k_scale", "v_scale")}
            sinks = call.options.get("sinks")
            each = Exact.of(
                q[number, head], keys, values * scales["v_scale"], masked, cap=call.options.get("softcap"),
                scale=q.shape[-1] ** -0.5 * scales["k_scale"], sink=None if sinks is None else float(sinks[head]),
            )  # fmt: skip
            wanted[number, head], logarithms[number, head] = each.out, each.lse
    return Outcome({"out": out, "lse": lse}, {"out": wanted, "lse": logarithms})


__all__ = ["emulate", "small"]
