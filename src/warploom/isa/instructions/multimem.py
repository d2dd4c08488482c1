"""Rows of accesses to the memory of several GPUs through one multimem address. PTX ISA 9.7.9.14."""

from __future__ import annotations

from typing import Any

from ..effects import READS, UPDATES, WEAK, WRITES, Access, Choice, Order
from .schema import Form, Modifiers

FAMILIES = "sm_100f sm_101f sm_110f sm_120f"
_PTX = (8, 1)
_HERE: dict[str, Any] = {"arch": "sm_90", "ptx": _PTX, "section": "9.7.9.14"}
_LATE = (FAMILIES, (8, 6))
_EIGHTS = "e4m3x2 e5m2x2 e4m3x4 e5m2x4"
_HALVES = "f16 bf16 f16x2 bf16x2"
_INTEGERS = "u32 s32 u64 s64 b32 b64"
_SIZES = {"f16": 16, "bf16": 16, "f16x2": 32, "bf16x2": 32, "f32": 32, "f64": 64, "e4m3": 8, "e5m2": 8,
          "e4m3x2": 16, "e5m2x2": 16, "e4m3x4": 32, "e5m2x4": 32}  # fmt: skip
_NEEDS = {
    **dict.fromkeys(f"{_EIGHTS} e4m3 e5m2".split(), _LATE), "acc::f16": _LATE, "acc::f32": ("sm_90", (8, 2)),
}  # fmt: skip
_OPERATIONS = {
    "add": f"u32 s32 u64 {_HALVES} f32 f64 e4m3 e5m2 {_EIGHTS}",
    **dict.fromkeys(("min", "max"), f"u32 s32 u64 s64 {_HALVES} e4m3 e5m2 {_EIGHTS}"),
    **dict.fromkeys(("and", "or", "xor"), "b32 b64"),
}  # fmt: skip
_WIDTHS = (32, 64, 128)


def _size(modifiers: Modifiers) -> str | None:
    """A sentence unless floats come in 32, 64 or 128 bits; otherwise None."""
    kind, vector = str(modifiers["type"]), modifiers.get("vec")
    if kind not in _SIZES:
        return f".{kind} is not loaded in vectors" if vector else None
    if kind == "f64" and vector:
        return ".f64 is not loaded in vectors"
    bits = _SIZES[kind] * int((vector or "v1")[1:])
    return None if bits in _WIDTHS else f"{bits} bits at once: 32, 64 or 128 are"


def _reduces(modifiers: Modifiers) -> str | None:
    operation, kind = str(modifiers["op"]), str(modifiers["type"])
    if kind not in _OPERATIONS[operation].split():
        return f".{operation} takes .{_OPERATIONS[operation].replace(' ', ', .')}, not .{kind}"
    accumulator = modifiers.get("acc")
    if accumulator:
        held = _HALVES if accumulator == "acc::f32" else f"e4m3 e5m2 {_EIGHTS}"
        if operation != "add" or kind not in held.split():
            return f".{accumulator} is for .add of .{held.replace(' ', ', .')}"
    return _size(modifiers)


def _adds(modifiers: Modifiers) -> str | None:
    """A sentence for a multimem.red with 8-bit floats, or with a single float and an operation other than add."""
    operation, kind = str(modifiers["op"]), str(modifiers["type"])
    if operation != "add" and kind in _SIZES and not modifiers.get("vec"):
        return f"multimem.red.{operation} takes integers and vectors of floats, not .{kind}"
    return _reduces(modifiers)


_ORDER = Order(Choice("sem"), Choice("scope"))
_SCOPES = {"scope": "cta cluster gpu sys"}


def _rows(name: str, tail: str, operands: str, slots: dict[str, str], how: str, sem: str, check: Any) -> list[Form]:
    """A weak row and an ordered one, for types that fill registers and, with `.b8` registers, for single bytes."""
    made = []
    for suffix, types, operand in (("", slots["type"], operands), ("_bytes", "e4m3 e5m2", _bytes(operands))):
        for ordered, prefix, order in (("", "{.weak}", WEAK), ("_ordered", ".sem.scope", _ORDER)):
            more = {"sem": sem, **_SCOPES} if ordered else {}
            made.append(
                Form(
                    f"multimem.{name}{suffix}{ordered}", f"multimem.{name}{prefix}{{.space}}{tail}", operand,
                    {**slots, **more, "type": types, "space": "global"}, **_HERE, needs=_NEEDS, check=check,
                    effects=(Access(how, "a", "global", order=order),),
                )
            )  # fmt: skip
    return made


def _bytes(operands: str) -> str:
    return operands.replace("d:type", "d:b8=").replace("b:type", "b:b8=")


_TYPES = f"{_INTEGERS} {_HALVES} f32 f64 {_EIGHTS}"
_VECTORS = {"vec": "v2 v4 v8"}
_REDUCTION = {"op": "add min max and or xor", "type": f"{_INTEGERS} {_HALVES} f32 f64", **_VECTORS, "space": "global"}


def _reduction(name: str, prefix: str, order: Order, **slots: str) -> Form:
    return Form(
        f"multimem.red{name}", f"multimem.red{prefix}{{.space}}.op{{.vec}}.type", "[a], b:type*vec",
        {**_REDUCTION, **slots}, **_HERE, check=_adds,
        effects=(Access(UPDATES, "a", "global", order=order, returns=False),),
    )  # fmt: skip


FORMS: tuple[Form, ...] = (
    *_rows(
        "ld_reduce", ".op{.acc}{.vec}.type", ">d:type*vec, [a]",
        {"op": "add min max and or xor", "acc": "acc::f32 acc::f16", **_VECTORS, "type": _TYPES}, READS,
        "relaxed acquire", _reduces,
    ),
    *_rows("st", "{.vec}.type", "[a], b:type*vec", {**_VECTORS, "type": _TYPES}, WRITES, "relaxed release", _size),
    _reduction("", "", Order("relaxed", "sys")),
    _reduction("_ordered", ".sem.scope", _ORDER, sem="relaxed release", **_SCOPES),
)  # fmt: skip
