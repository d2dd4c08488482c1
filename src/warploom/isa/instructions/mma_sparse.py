"""Rows of the warp-level multiply-accumulate with a 2:4 sparse A, `mma.sp`. PTX ISA 9.7.14.6.

Half of A is stored, k counts all of it, and `meta` says which half: four bits for each group of neighbours along k. How
many of four neighbouring threads are asked for it (one, two or all four) follows from the type and k, and `sel` says
which: the last word of a row's key. `.sp` takes a group's two places in either order, `.sp::ordered_metadata` in
ascending order alone. (Sums in f16 of eight-bit products only sm_120a has: with a kind, `mma_kinds`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .mma import shape_of
from .schema import Form, Modifiers

SECTION = "9.7.14.6.3"
ORDERED = "sp::ordered_metadata"
ASKED = {"one": 4, "two": 2, "four": 1}
"""Of four neighbouring threads, how many hold metadata; how many values the selector has."""


def _lengths(bits: int, accumulator_bits: int) -> Mapping[str, Callable[[Modifiers], int]]:
    """Registers of A, B and C of one thread; half of A is stored."""

    def a(modifiers: Modifiers) -> int:
        m, _, k = shape_of(modifiers)
        return m * k // 2 // 32 * bits // 32

    def b(modifiers: Modifiers) -> int:
        _, n, k = shape_of(modifiers)
        return n * k // 32 * bits // 32

    def c(modifiers: Modifiers) -> int:
        m, n, _ = shape_of(modifiers)
        return m * n // 32 * accumulator_bits // 32

    return {"a": a, "b": b, "c": c}


def _forms(
    name: str, tail: str, register: str, depths: Sequence[tuple[int, str]], bits: int, accumulator_bits: int,
    slots: Mapping[str, str], arch: str = "sm_80", ptx: tuple[int, int] = (7, 1),
) -> list[Form]:  # fmt: skip
    """A row for each depth: (k, how many threads are asked)."""
    operands = f">d:{register}*c, a:b32!*a, b:b32!*b, c:{register}*c, meta:b32!, sel:imm"
    made = []
    for k, asked in depths:
        values = range(ASKED[asked])
        made.append(Form(
            f"mma.sp_{name}_{asked}", f"mma.variant.sync.aligned.shape.row.col{tail}", operands,
            {"variant": f"sp {ORDERED}", "shape": f"m16n8k{k}", **slots},
            arch=arch, ptx=ptx, needs={ORDERED: (arch, max(ptx, (8, 5)))}, lengths=_lengths(bits, accumulator_bits),
            ranges={"sel": (values, " or ".join(map(str, values)) if len(values) < 3 else "0 to 3")},
            section=SECTION, unit="mma", converged="warp", noun="mma.sp",
        ))  # fmt: skip
    return made


_FP8 = {"atype": "e4m3 e5m2", "btype": "e4m3 e5m2"}
_INT8, _INT4 = ({"atype": f"s{bits} u{bits}", "btype": f"s{bits} u{bits}"} for bits in (8, 4))
_INTEGER = "{.satfinite}.s32.atype.btype.s32"
_HALF, _BYTES, _NIBBLES = ((16, "one"), (32, "two")), ((32, "two"), (64, "four")), ((64, "two"), (128, "four"))

FORMS: tuple[Form, ...] = (
    *_forms("f16_f32", ".f32.f16.f16.f32", "f32", _HALF, 16, 32, {}),
    *_forms("f16_f16", ".f16.f16.f16.f16", "b32", _HALF, 16, 16, {}),
    *_forms("bf16", ".f32.bf16.bf16.f32", "f32", _HALF, 16, 32, {}),
    *_forms("tf32", ".f32.tf32.tf32.f32", "f32", ((8, "one"), (16, "two")), 32, 32, {}),
    *_forms("fp8_f32", ".f32.atype.btype.f32", "f32", _BYTES[1:], 8, 32, _FP8, "sm_89", (8, 4)),
    *_forms("int8", _INTEGER, "s32", _BYTES, 8, 32, _INT8),
    *_forms("int4", _INTEGER, "s32", _NIBBLES, 4, 32, _INT4),
)
