"""Rows of the warp-level multiply-accumulate with a 2:4 sparse A, `mma.sp`. PTX ISA 9.7.14.6.

Half of A is stored, k counts all of it, and `meta` names the stored half: four bits per group of consecutive elements
along k. The number of adjacent threads that provide it (one, two or all of four) follows from the type and k: the last
word of a row's key. `sel` selects the threads. `.sp` accepts a group's two positions in either order,
`.sp::ordered_metadata` only in ascending order. (Only sm_120a has f16 sums of eight-bit products: with a kind,
`mma_kinds`.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .mma import shape_of
from .schema import Form, Modifiers

SECTION = "9.7.14.6.3"
ORDERED = "sp::ordered_metadata"
ASKED = {"one": 4, "two": 2, "four": 1}
"""By the number of threads in four that hold metadata: the number of values of the selector."""


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
    """One row per depth: (k, the number of threads that provide metadata)."""
    factor = "^f16x2" if name.startswith("f16") else "!"  # register types as ptxas 13.0 takes them
    half = "^f16x2" if register == "b32" else ""
    operands = f">d:{register}{half}*c, a:b32{factor}*a, b:b32{factor}*b, c:{register}{half}*c, meta:b32!, sel:imm"
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
