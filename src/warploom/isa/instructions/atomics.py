"""Rows of atom and red.

PTX ISA 9.7.13.5 (atom) and 9.7.13.6 (red). `TYPES_OF_OPERATION` has the types of each operation, as in ptxas (narrower
than the ISA's syntax line: .add has no .s64, .exch no .u32). ptxas accepts the modifiers in any order; the rows have
the ISA's own order, state space first, scope before semantics (Triton) and operation first.
"""

from __future__ import annotations

from ..effects import STATE_SPACE, UPDATES, Access, Choice, Order
from .memory import ORDERED_SPACES, SCOPES
from .schema import Form, Modifiers

TYPES_OF_OPERATION = {
    "add": "u32 s32 u64 f32 f64 f16 f16x2 bf16 bf16x2",
    "min": "u32 s32 u64 s64",
    "max": "u32 s32 u64 s64",
    "inc": "u32",
    "dec": "u32",
    "and": "b32 b64",
    "or": "b32 b64",
    "xor": "b32 b64",
    "exch": "b32 b64 b128",
}
"""The types of each scalar operation."""

TYPES_OF_VECTOR = {
    "f32": ("add", "v2 v4"),
    "f16": ("add min max", "v2 v4 v8"), "bf16": ("add min max", "v2 v4 v8"),
    "f16x2": ("add min max", "v2 v4"), "bf16x2": ("add min max", "v2 v4"),
}  # fmt: skip
"""The operations and vector lengths of each element type of a vector atom or red."""

_HALVES = frozenset({"f16", "f16x2", "bf16", "bf16x2"})
_SEMANTICS = ("sm_70", (6, 0))
_SCOPE = ("sm_60", (5, 0))
_NEEDS = {
    "relaxed": _SEMANTICS, "acquire": _SEMANTICS, "release": _SEMANTICS, "acq_rel": _SEMANTICS,
    "cta": _SCOPE, "gpu": _SCOPE, "sys": _SCOPE, "cluster": ("sm_90", (7, 8)),
    "shared::cta": ("sm_50", (7, 8)), "shared::cluster": ("sm_90", (7, 8)), "L2::cache_hint": ("sm_80", (7, 4)),
    "b16": ("sm_70", (6, 3)), "b128": ("sm_90", (8, 3)), "f64": ("sm_60", (5, 0)),
    "f16x2": ("sm_60", (6, 2)), "f16": ("sm_70", (6, 3)), "bf16": ("sm_90", (7, 8)), "bf16x2": ("sm_90", (7, 8)),
}  # fmt: skip


def _check_noftz(modifiers: Modifiers) -> str | None:
    name = modifiers["type"]
    if name in _HALVES and not modifiers.get("noftz"):
        return f".{name} needs .noftz: 16-bit atomics keep subnormals"
    if name not in _HALVES and modifiers.get("noftz"):
        return f".noftz goes with 16-bit floating point only, not with .{name}"
    return None


def check_scalar(modifiers: Modifiers) -> str | None:
    """A sentence if operation, type, .noftz and cache hint do not fit together; otherwise None."""
    operation, name = modifiers["op"] or "", modifiers["type"] or ""
    if name not in TYPES_OF_OPERATION[operation].split():
        return f".{operation} has no .{name}; it takes .{' .'.join(TYPES_OF_OPERATION[operation].split())}"
    if "L2::cache_hint" in modifiers and modifiers.get("space") not in (None, "global"):
        return f".L2::cache_hint goes with .global or generic addresses, not with .{modifiers['space']}"
    return _check_noftz(modifiers)


def check_vector(modifiers: Modifiers) -> str | None:
    """A sentence if operation, length and element type do not fit together; otherwise None."""
    operation, name, vector = modifiers["op"], modifiers["type"] or "", modifiers["vec"]
    operations, lengths = TYPES_OF_VECTOR[name]
    if operation not in operations.split():
        return f"a vector of .{name} has no .{operation}"
    if vector not in lengths.split():
        return f".{vector} of .{name} does not exist; .{' .'.join(lengths.split())} do"
    return _check_noftz(modifiers)


_ATOMIC = Order(Choice("sem", "relaxed"), Choice("scope", "gpu"))
_UPDATE = {
    "atom": (Access(UPDATES, "a", STATE_SPACE, order=_ATOMIC),),
    "red": (Access(UPDATES, "a", STATE_SPACE, order=_ATOMIC, returns=False),),
}


def _orders(base: str, operation: str, tail: str) -> list[tuple[str, str]]:
    """Suffix of the row's key and opcode pattern, for each order of semantics, scope, space and operation."""
    return [
        ("", f"{base}{{.sem}}{{.scope}}{{.space}}{operation}{tail}"),
        ("_space_first", f"{base}.space.sem{{.scope}}{operation}{tail}"),
        ("_scope_first", f"{base}.space.scope{{.sem}}{operation}{tail}"),
        ("_operation_first", f"{base}{operation}{{.sem}}{{.scope}}.space{tail}"),
        ("_operation_first_generic", f"{base}{operation}.sem{{.scope}}{tail}"),
    ]


def _family(base: str, sem: str, operations: str, section: str, types: str) -> list[Form]:
    to = ">d:type, " if base == "atom" else ""
    to_vector = ">d:type*vec, " if base == "atom" else ""
    places = {"sem": sem, "scope": SCOPES, "space": ORDERED_SPACES}
    scalar = {**places, "op": operations, "type": types}
    version = (1, 1) if base == "atom" else (1, 2)
    rows = []
    for suffix, pattern in _orders(base, ".op{.noftz}", ".type"):
        rows.append(
            Form(f"{base}.scalar{suffix}", pattern, f"{to}[a], b:type", scalar, ptx=version, needs=_NEEDS,
                 check=check_scalar, section=section, effects=_UPDATE[base])
        )  # fmt: skip
    rows.append(
        Form(f"{base}.scalar_policy", f"{base}{{.sem}}{{.scope}}{{.space}}.op{{.noftz}}.L2::cache_hint.type",
             f"{to}[a], b:type, policy:b64~", scalar, arch="sm_80", ptx=(7, 4), needs=_NEEDS, check=check_scalar,
             section=section, effects=_UPDATE[base])
    )  # fmt: skip
    vector = {"sem": sem, "scope": SCOPES, "space": "global", "op": "add min max", "vec": "v2 v4 v8",
              "type": "f32 f16 f16x2 bf16 bf16x2"}  # fmt: skip
    for suffix, pattern, more in (
        ("", "{.op}{.noftz}.vec.type", ""),
        ("_type_first", ".vec.type.op{.noftz}", ""),
        ("_policy", ".op{.noftz}.L2::cache_hint.vec.type", ", policy:b64~"),
    ):
        pattern = pattern.replace("{.op}", ".op")
        rows.append(
            Form(f"{base}.vector{suffix}", f"{base}{{.sem}}{{.scope}}{{.space}}{pattern}",
                 f"{to_vector}[a], b:type*vec{more}", vector, arch="sm_90", ptx=(8, 1), check=check_vector,
                 section=section, effects=_UPDATE[base])
        )  # fmt: skip
    return rows


def _compare_and_swap() -> list[Form]:
    sem = "relaxed acquire release acq_rel"
    slots = {"sem": sem, "scope": SCOPES, "space": ORDERED_SPACES, "type": "b32 b16 b64 b128"}
    return [
        Form(f"atom.cas{suffix}", pattern, ">d:type, [a], b:type, c:type", slots, ptx=(1, 1), needs=_NEEDS,
             section="9.7.13.5", effects=_UPDATE["atom"])
        for suffix, pattern in _orders("atom", ".cas", ".type")
    ]  # fmt: skip


_SCALAR_TYPES = "u32 b32 b64 u64 s32 s64 f32 f64 f16 f16x2 bf16 bf16x2"

FORMS: tuple[Form, ...] = (
    *_family(
        "atom", "relaxed acquire release acq_rel", "add and or xor exch inc dec min max", "9.7.13.5",
        f"{_SCALAR_TYPES} b128",
    ),
    *_compare_and_swap(),
    *_family("red", "relaxed release", "add and or xor inc dec min max", "9.7.13.6", _SCALAR_TYPES),
)  # fmt: skip
"""All rows of this family."""
