"""Comparison and selection: PTX ISA 9.7.6, and its half precision forms, 9.7.7."""

from __future__ import annotations

from .schema import Form

EQUALITY = "eq ne"
SIGNED = "eq ne lt le gt ge"
UNSIGNED = "eq ne lt le gt ge lo ls hi hs"
FLOATING = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan"
BOOLEANS = "and or xor"

_OLD = ("sm_50", (1, 0))
_HALF = ("sm_53", (4, 2))
_LATE = ("sm_90", (7, 8))

# Comparisons: name, source types, comparisons, flush slot, target and PTX version.
_CLASSES = (
    ("bits", "b16 b32 b64", EQUALITY, "", _OLD),
    ("signed", "s16 s32 s64", SIGNED, "", _OLD),
    ("unsigned", "u16 u32 u64", UNSIGNED, "", _OLD),
    ("f32", "f32", FLOATING, "{.ftz}", _OLD),
    ("f64", "f64", FLOATING, "", _OLD),
    ("f16", "f16", FLOATING, "{.ftz}", _HALF),
    ("bf16", "bf16", FLOATING, "", _LATE),
)
_PAIRS = (
    ("f16x2", "f16x2", FLOATING, "{.ftz}", _HALF),
    ("bf16x2", "bf16x2", FLOATING, "", _LATE),
)

# Result types of `set` by class of source; the ISA lists them in two sections that overlap.
_RESULTS = {
    "f16": (("u16 s16 u32 s32", ("sm_53", (6, 5))), ("f16", _HALF), ("bf16", _LATE)),
    "bf16": (("u16 s16 u32 s32", _LATE), ("bf16", _LATE)),
    "f16x2": (("f16x2", _HALF), ("u32 s32", ("sm_53", (6, 5)))),
    "bf16x2": (("bf16x2", _LATE), ("u32 s32", _LATE)),
}
_REGISTERS = {"bf16": "b16~", "bf16x2": "b32"}
"""The registers of a result, where ptxas 13.0 takes more than those of its type."""
_PLAIN_RESULTS = (("u32 s32 f32", _OLD), ("f16", _HALF), ("bf16", _LATE))


def _both(
    key: str, opcode: str, operands: str, slots: dict[str, str], need: tuple[str, tuple[int, int]], section: str
) -> list[Form]:
    """A row, and the row that combines the result with a predicate; `opcode` has `{bool}` in the word's position."""
    with_bool = {**slots, "bool": BOOLEANS}
    combined = "c:pred!" if any("bf16" in words for words in slots.values()) else "c:pred"  # ptxas 13.0: no constant
    operands_bool, opcode_bool = f"{operands}, {combined}", opcode.replace("{bool}", ".bool")
    return [
        Form(key, opcode.replace("{bool}", ""), operands, slots, *need, section=section),
        Form(f"{key}.bool", opcode_bool, operands_bool, with_bool, *need, section=section),
    ]


def _values(name: str) -> str:
    # ptxas takes no constant where half precision is compared.
    return "a:type!, b:type!" if "f16" in name else "a:type, b:type"


def _setp() -> list[Form]:
    rows = []
    for name, types, comparisons, flush, need in (*_CLASSES, *_PAIRS):
        # The second predicate: the opposite, or for a pair the upper half's; scalar half precision has none.
        destination = ">p:pred" if name in ("f16", "bf16") else ">p:pred|q:pred"
        slots = {"cmp": comparisons, "type": types}
        section = "9.7.7.2" if "f16" in name else "9.7.6.2"
        operands = f"{destination}, {_values(name)}"
        rows += _both(f"setp.{name}", f"setp.cmp{{bool}}{flush}.type", operands, slots, need, section)
    return rows


def _set() -> list[Form]:
    rows = []
    for name, types, comparisons, flush, base in (*_CLASSES, *_PAIRS):
        for results, need in _RESULTS.get(name, _PLAIN_RESULTS):
            late = max(need, base, key=lambda item: int(item[0][3:]))
            half = "f16" in name or "f16" in results
            slots = {"cmp": comparisons, "dtype": results, "type": types}
            # A bf16 result excludes .ftz, which ptxas checks.
            opcode = f"set.cmp{{bool}}{'' if results == 'bf16' else flush}.dtype.type"
            key = f"set.{name}.{results.split()[0]}"
            destination = f">d:{_REGISTERS.get(results, 'dtype')}"
            rows += _both(key, opcode, f"{destination}, {_values(name)}", slots, late, "9.7.7.1" if half else "9.7.6.1")
    return rows


_SELECTED = "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64"

FORMS: tuple[Form, ...] = (
    *_set(),
    *_setp(),
    Form("selp", "selp.type", ">d:type, a:type, b:type, c:pred", {"type": _SELECTED}, section="9.7.6.3"),
    Form("slct.s32", "slct.type.s32", ">d:type, a:type, b:type, c:s32", {"type": _SELECTED}, section="9.7.6.4"),
    Form("slct.f32", "slct{.ftz}.type.f32", ">d:type, a:type, b:type, c:f32", {"type": _SELECTED}, section="9.7.6.4"),
)
