"""Comparison and selection: PTX ISA 9.7.6, and half precision, 9.7.7."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...isa import dtypes
from ...isa.instructions import compare as rows
from ..machine.frame import Frame
from ..numerics.rounding import TINY32, bf16_to_f32, flush
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .integer import computed, spread

HANDLERS = Handlers()

Comparison = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _ordered_unequal(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.less(a, b) | np.greater(a, b)


def _not(comparison: Comparison) -> Comparison:
    return lambda a, b: ~comparison(a, b)


_INTEGER: dict[str, Comparison] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
# NaN makes the plain comparisons false and those with a `u` true.
_FLOAT: dict[str, Comparison] = {
    **_INTEGER,
    "ne": _ordered_unequal,
    "equ": _not(_ordered_unequal),
    "neu": np.not_equal,
    "ltu": _not(np.greater_equal),
    "leu": _not(np.greater),
    "gtu": _not(np.less_equal),
    "geu": _not(np.less),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}
_COMBINE = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison_of(d: Decode) -> tuple[Comparison, Callable[[Frame, int], np.ndarray], tuple[int, int]]:
    """The comparison, the reader of an operand's slot, and the two slots. Packed operands come as (2, lanes)."""
    kind = d.type("a")
    comparison = (_FLOAT if kind.is_float else _INTEGER)[d.modifier("cmp")]
    flushes = bool(d.modifier("ftz"))
    name = kind.name.removesuffix("x2")
    if name not in ("f16", "bf16"):
        slots = d.source("a"), d.source("b")
        if flushes:
            return comparison, lambda frame, slot: flush(frame.values[slot]), slots
        return comparison, lambda frame, slot: frame.values[slot], slots
    packed = kind.name.endswith("x2")
    bits = dtypes.b32 if packed else dtypes.b16
    tiny = 2.0**-14 if name == "f16" else TINY32

    def read(frame: Frame, slot: int) -> np.ndarray:
        raw = spread(frame, slot).view(np.uint16)
        if packed:
            raw = np.ascontiguousarray(raw.reshape(frame.lanes, 2).T)
        values = raw.view(np.float16).astype(np.float32) if name == "f16" else bf16_to_f32(raw)
        return flush(values, tiny) if flushes else values

    return comparison, read, (d.source("a", bits), d.source("b", bits))


@HANDLERS.add(*(form.key for form in rows.FORMS if form.base == "setp"))
def set_predicate(d: Decode) -> Step:
    comparison, read, (a, b) = comparison_of(d)
    p = d.destination("p")
    pair = d.type("a").name.endswith("x2")
    has_q = "q" in d.operands
    plain = (
        isinstance(comparison, np.ufunc) and not pair and not has_q and "bool" not in d.modifiers and not d.has("ftz")
    )
    if plain and d.type("a").name not in ("f16", "bf16"):

        def fast(frame: Frame) -> None:
            v = frame.values
            comparison(v[a], v[b], out=v[p], where=frame.mask)  # type: ignore[call-arg]

        return fast
    combine = _COMBINE.get(d.modifier("bool"))
    c = d.predicate("c")
    q = d.destination("q") if has_q else -1

    def step(frame: Frame) -> None:
        truth = comparison(read(frame, a), read(frame, b))
        second = truth[1] if pair else ~truth
        first = truth[0] if pair else truth
        if combine is not None:
            extra = c(frame)
            first, second = combine(first, extra), combine(second, extra)
        frame.write(p, first)
        if has_q:
            frame.write(q, second)

    return step


@HANDLERS.add(*(form.key for form in rows.FORMS if form.base == "set"))
def set_value(d: Decode) -> Step:
    """All ones or 1.0 where true; packed halves side by side for a packed source."""
    comparison, read, (a, b) = comparison_of(d)
    target = dtypes.ALL[d.modifier("dtype")]
    packed = d.type("a").name.endswith("x2")
    combine = _COMBINE.get(d.modifier("bool"))
    c = d.predicate("c")
    one = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}.get(target.name)
    element = np.uint16 if packed or target.bits == 16 else np.uint32
    true = element(one if one is not None else np.iinfo(element).max)
    out = d.destination("d", dtypes.ALL[f"b{target.bits}"])

    def step(frame: Frame) -> None:
        truth = comparison(read(frame, a), read(frame, b))
        if combine is not None:
            truth = combine(truth, c(frame))
        value = np.where(truth, true, element(0))
        if packed:
            value = value[0].astype(np.uint32) | (value[1].astype(np.uint32) << np.uint32(16))
        frame.write(out, value)

    return step


@HANDLERS.add("selp")
def select(d: Decode) -> Step:
    kind = dtypes.ALL[f"b{d.type('d').bits}"]
    if d.type("d").is_float:
        kind = d.type("d")
    a, b, c, out = d.source("a", kind), d.source("b", kind), d.predicate("c"), d.destination("d", kind)

    def step(frame: Frame) -> None:
        v = frame.values
        np.copyto(v[out], np.where(c(frame), v[a], v[b]), where=frame.mask)

    return step


@HANDLERS.add("slct.s32", "slct.f32")
def select_by_sign(d: Decode) -> Step:
    """`a` where c >= 0 (minus zero is; NaN is not), else `b`. Flushing a negative subnormal makes it -0."""
    flushes = bool(d.modifier("ftz"))
    return computed(d, "abc", lambda a, b, c: np.where((flush(c) if flushes else c) >= 0, a, b))
