"""Rows of loads, stores, address conversion and cache control.

PTX ISA 9.7.9.8-11 (ld, ld.nc, ldu, st) and 9.7.9.15-20 (prefetch to cvta). ptxas accepts the modifiers of a memory
instruction in any order. Besides the ISA's own order, the rows have the two that compilers and libraries write: state
space first (`ld.global.relaxed.gpu`), and scope before semantics (`ld.global.gpu.relaxed`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..effects import READS, STATE_SPACE, WEAK, WRITES, Access, Choice, Effect, Order
from .schema import Form, Modifiers

Needs = Mapping[str, tuple[str, tuple[int, int]]]

TYPES = "b32 b8 b16 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
ORDERED_SPACES = "global shared shared::cta shared::cluster"
LOAD_SPACES = f"{ORDERED_SPACES} local const param param::entry param::func"
STORE_SPACES = f"{ORDERED_SPACES} local param param::func"
LEVEL1 = "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate"
LEVEL2 = "L2::evict_normal L2::evict_first L2::evict_last"
PREFETCH = "L2::64B L2::128B L2::256B"
SCOPES = "cta cluster gpu sys"

_SEMANTICS = ("sm_70", (6, 0))
_LEVEL1 = ("sm_70", (7, 4))
NEEDS: Needs = {
    "weak": _SEMANTICS, "relaxed": _SEMANTICS, "acquire": _SEMANTICS, "release": _SEMANTICS,
    "cluster": ("sm_90", (7, 8)), "shared::cta": ("sm_50", (7, 8)), "shared::cluster": ("sm_90", (7, 8)),
    "param::entry": ("sm_50", (8, 3)), "param::func": ("sm_50", (8, 3)),
    "b128": ("sm_70", (8, 3)),
    **dict.fromkeys(LEVEL1.split(), _LEVEL1),
    "L2::64B": ("sm_75", (7, 4)), "L2::128B": ("sm_75", (7, 4)), "L2::256B": ("sm_80", (7, 4)),
    "L2::cache_hint": ("sm_80", (7, 4)),
}  # fmt: skip
"""First target and PTX version of each modifier that was added after the instruction."""


_MMIO: Needs = {"b128": ("sm_70", (8, 4))}
"""128 bits at .sys scope were added one version later than at the others."""


def bits_of(type_name: str) -> int:
    """Width of a memory type in bits, from its name."""
    return int(type_name.lstrip("busf"))


def check_access(modifiers: Modifiers) -> str | None:
    """The rules of 9.7.9.8 and 9.7.9.11 that relate modifiers to each other; a sentence, or None."""
    vector = modifiers.get("vec")
    width = bits_of(modifiers["type"] or "b32") * (int(vector[1:]) if vector else 1)
    if width > 128:
        return f"an access of {width} bits is wider than 128"
    in_global = modifiers.get("space") in (None, "global")
    for slot in ("prefetch", "L2::cache_hint"):
        if modifiers.get(slot) and not in_global:
            return f".{modifiers[slot]} goes with .global or generic addresses, not with .{modifiers['space']}"
    cache = modifiers.get("cache") or ""
    if cache.startswith("L1::") and not in_global:
        return f".{cache} goes with .global or generic addresses, not with .{modifiers['space']}"
    if modifiers.get("cop") and cache.startswith("L1::"):
        return f".{modifiers['cop']} and .{cache} exclude each other"
    return None


def check_wide(modifiers: Modifiers) -> str | None:
    """256-bit accesses are .v8 of 32-bit or .v4 of 64-bit elements (9.7.9.8)."""
    width = bits_of(modifiers["type"] or "b32")
    if width * int((modifiers["vec"] or "v8")[1:]) != 256:
        return f".{modifiers['vec']} of {width}-bit elements is not 256 bits"
    return None


def _with_policy(key: str, pattern: str, operands: str, slots: Mapping[str, str], at: str, **rest: Any) -> list[Form]:
    """A row, and its variant with .L2::cache_hint (placed before `at` in the pattern) and the cache-policy operand."""
    hinted = pattern.replace(at, f".L2::cache_hint{at}", 1)
    return [
        Form(key, pattern, operands, slots, **rest),
        Form(f"{key}_policy", hinted, f"{operands}, policy:b64~", slots, **rest),
    ]


_BY_SYNTAX = Order(Choice("sem"), Choice("scope"))
_SYSTEM = Order("relaxed", "sys")


def _reads(order: Order = WEAK, space: object = STATE_SPACE) -> tuple[Effect, ...]:
    return (Access(READS, "a", space, order=order),)


def _writes(order: Order = WEAK, space: object = STATE_SPACE) -> tuple[Effect, ...]:
    return (Access(WRITES, "a", space, order=order),)


def _loads() -> list[Form]:
    common: dict[str, Any] = {"arch": "sm_50", "section": "9.7.9.8", "needs": NEEDS, "check": check_access}
    slots = {"prefetch": PREFETCH, "vec": "v2 v4", "type": TYPES}
    weak = {**slots, "space": LOAD_SPACES, "cache": f"ca cg cs lu cv {LEVEL1}"}
    ordered = {**slots, "space": ORDERED_SPACES, "sem": "relaxed acquire", "scope": SCOPES, "cache": LEVEL1}
    tail = "{.cache}{.prefetch}{.vec}.type"
    to = ">d:type*vec, [a]"
    wide = {"vec": "v8 v4", "type": "b32 b64 u32 u64 s32 s64 f32 f64", "space": "global", "prefetch": PREFETCH,
            "cache": LEVEL1, "level2": LEVEL2}  # fmt: skip
    nc = {**slots, "space": "global", "cop": "ca cg cs", "cache": LEVEL1}
    at = "{.prefetch}"
    strong: dict[str, Any] = {"ptx": (6, 0), "effects": _reads(_BY_SYNTAX), **common}
    rows = _with_policy("ld.weak", "ld{.weak}{.space}" + tail, to, weak, at, ptx=(1, 0), effects=_reads(), **common)
    rows += _with_policy("ld.ordered", "ld.sem.scope{.space}" + tail, to, ordered, at, **strong)
    rows += _with_policy("ld.ordered_space_first", "ld.space.sem.scope" + tail, to, ordered, at, **strong)
    rows += _with_policy("ld.ordered_scope_first", "ld.space.scope.sem" + tail, to, ordered, at, **strong)
    rows += _with_policy(
        "ld.nc", "ld.space{.cop}.nc" + tail, to, nc, at, arch="sm_50", ptx=(3, 1), section="9.7.9.9",
        needs=NEEDS, check=check_access, effects=_reads(),
    )  # fmt: skip
    wide_tail = "{.cache}{.level2}{.prefetch}.vec.type"
    late: dict[str, Any] = {"arch": "sm_100", "ptx": (8, 8), "check": check_wide, "section": "9.7.9.8",
                            "effects": _reads()}  # fmt: skip
    rows += _with_policy("ld.wide", "ld{.weak}{.space}" + wide_tail, to, wide, at, **late)
    wide_ordered = {**wide, "sem": "relaxed acquire", "scope": SCOPES}
    strong_late = {**late, "effects": _reads(_BY_SYNTAX)}
    rows += _with_policy("ld.wide_ordered", "ld.sem.scope{.space}" + wide_tail, to, wide_ordered, at, **strong_late)
    rows += _with_policy(
        "ld.wide_ordered_space_first", "ld.space.sem.scope" + wide_tail, to, wide_ordered, at, **strong_late
    )
    rows.append(
        Form("ld.wide_volatile", "ld.volatile{.space}{.level2}{.prefetch}.vec.type", to, wide,
             **{**late, "effects": _reads(_SYSTEM)})
    )  # fmt: skip
    rows += _with_policy("ld.wide_nc", "ld.space.nc" + wide_tail, to, wide, at, **late)
    volatile, own = {**slots, "space": ORDERED_SPACES}, {**slots, "space": "local"}
    system: dict[str, Any] = {"ptx": (1, 1), "effects": _reads(_SYSTEM), **common}
    private: dict[str, Any] = {"ptx": (9, 1), "effects": _reads(), **common}
    rows += [
        Form("ld.volatile", "ld.volatile{.space}{.prefetch}{.vec}.type", to, volatile, **system),
        Form("ld.volatile_space_first", "ld.space.volatile{.prefetch}{.vec}.type", to, volatile, **system),
        Form("ld.volatile_local", "ld.volatile.space{.prefetch}{.vec}.type", to, own, **private),
        Form("ld.volatile_local_space_first", "ld.space.volatile{.prefetch}{.vec}.type", to, own, **private),
        Form("ld.mmio", "ld.mmio.relaxed.sys{.global}.type", ">d:type, [a]", {"type": TYPES}, arch="sm_70",
             ptx=(8, 2), needs=_MMIO, section="9.7.9.8", effects=_reads(_SYSTEM, "global")),
        Form("ld.mmio_space_first", "ld.global.mmio.relaxed.sys.type", ">d:type, [a@global]", {"type": TYPES},
             arch="sm_70", ptx=(8, 2), needs=_MMIO, section="9.7.9.8", effects=_reads(_SYSTEM, "global")),
        Form("ldu.uniform", "ldu{.space}{.vec}.type", to, {"space": "global", "vec": "v2 v4", "type": TYPES},
             ptx=(2, 0), needs=NEEDS, check=check_access, section="9.7.9.10",
             effects=_reads()),
    ]  # fmt: skip
    return rows


def _stores() -> list[Form]:
    common: dict[str, Any] = {"arch": "sm_50", "section": "9.7.9.11", "needs": NEEDS, "check": check_access}
    slots = {"vec": "v2 v4", "type": TYPES}
    weak = {**slots, "space": STORE_SPACES, "cache": f"wb cg cs wt {LEVEL1}"}
    ordered = {**slots, "space": ORDERED_SPACES, "sem": "relaxed release", "scope": SCOPES, "cache": LEVEL1}
    wide = {"vec": "v8 v4", "type": "b32 b64 u32 u64 s32 s64 f32 f64", "space": "global", "cache": LEVEL1,
            "level2": LEVEL2}  # fmt: skip
    volatile = {**slots, "space": ORDERED_SPACES}
    tail, frm, at = "{.cache}{.vec}.type", "[a], b:type*vec", "{.vec}.type"
    strong: dict[str, Any] = {"ptx": (6, 0), "effects": _writes(_BY_SYNTAX), **common}
    rows = _with_policy("st.weak", "st{.weak}{.space}" + tail, frm, weak, at, ptx=(1, 0), effects=_writes(), **common)
    rows += _with_policy("st.ordered", "st.sem.scope{.space}" + tail, frm, ordered, at, **strong)
    rows += _with_policy("st.ordered_space_first", "st.space.sem.scope" + tail, frm, ordered, at, **strong)
    rows += _with_policy("st.ordered_scope_first", "st.space.scope.sem" + tail, frm, ordered, at, **strong)
    rows += _with_policy(
        "st.wide", "st{.weak}{.space}{.cache}{.level2}.vec.type", frm, wide, ".vec", arch="sm_100", ptx=(8, 8),
        check=check_wide, section="9.7.9.11", effects=_writes(),
    )  # fmt: skip
    late: dict[str, Any] = {"arch": "sm_100", "ptx": (8, 8), "check": check_wide, "section": "9.7.9.11"}
    wide_ordered = {**wide, "sem": "relaxed release", "scope": SCOPES}
    for name, prefix in (("", "st.sem.scope{.space}"), ("_space_first", "st.space.sem.scope")):
        rows += _with_policy(
            f"st.wide_ordered{name}", prefix + "{.cache}{.level2}.vec.type", frm, wide_ordered, ".vec",
            effects=_writes(_BY_SYNTAX), **late,
        )  # fmt: skip
    rows.append(
        Form("st.wide_volatile", "st.volatile{.space}{.level2}.vec.type", frm, wide, effects=_writes(_SYSTEM), **late)
    )
    own = {**slots, "space": "local"}
    private: dict[str, Any] = {"ptx": (9, 1), "effects": _writes(), **common}
    system: dict[str, Any] = {"ptx": (1, 1), "effects": _writes(_SYSTEM), **common}
    rows += [
        Form("st.volatile", "st.volatile{.space}{.vec}.type", frm, volatile, **system),
        Form("st.volatile_space_first", "st.space.volatile{.vec}.type", frm, volatile, **system),
        Form("st.volatile_local", "st.volatile.space{.vec}.type", frm, own, **private),
        Form("st.volatile_local_space_first", "st.space.volatile{.vec}.type", frm, own, **private),
        Form("st.mmio", "st.mmio.relaxed.sys{.global}.type", "[a], b:type", {"type": TYPES}, arch="sm_70",
             ptx=(8, 2), needs=_MMIO, section="9.7.9.11", effects=_writes(_SYSTEM, "global")),
        Form("st.mmio_space_first", "st.global.mmio.relaxed.sys.type", "[a@global], b:type", {"type": TYPES},
             arch="sm_70", ptx=(8, 2), needs=_MMIO, section="9.7.9.11", effects=_writes(_SYSTEM, "global")),
    ]  # fmt: skip
    return rows


_WINDOWS = "global shared shared::cta shared::cluster local const param param::entry"
_WINDOW_NEEDS: Needs = {
    "const": ("sm_50", (3, 1)), "param": ("sm_70", (7, 7)), "param::entry": ("sm_70", (8, 3)),
    "shared::cta": ("sm_50", (7, 8)), "shared::cluster": ("sm_90", (7, 8)),
}  # fmt: skip
_PRIMARY = "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged"
_SECONDARY = "L2::evict_first L2::evict_unchanged"


def _is_64_bit(modifiers: Modifiers) -> str | None:
    if modifiers.get("type") == "u32":
        return "32-bit generic addresses exist only in texts without `.address_size 64`"
    return None


def _addresses() -> list[Form]:
    slots = {"space": _WINDOWS, "type": "u64 u32"}
    return [
        Form("cvta.from", "cvta.space.type", ">d:type, a:type&space", slots, ptx=(2, 0), needs=_WINDOW_NEEDS,
             check=_is_64_bit, section="9.7.9.20"),
        Form("cvta.to", "cvta.to.space.type", ">d:type, a:type", slots, ptx=(2, 0), needs=_WINDOW_NEEDS,
             check=_is_64_bit, section="9.7.9.20"),
        Form("isspacep", "isspacep.space", ">p:pred, a:u64", {"space": _WINDOWS}, ptx=(2, 0), needs=_WINDOW_NEEDS,
             section="9.7.9.19"),
    ]  # fmt: skip


_LINE = {"size": (range(128, 129), "128")}
"""The size of instructions that name a cache line."""


def _cache_control() -> list[Form]:
    policy: dict[str, Any] = {"arch": "sm_80", "ptx": (7, 4), "section": "9.7.9.18"}
    primary = {"primary": _PRIMARY, "secondary": _SECONDARY}
    return [
        Form("prefetch.line", "prefetch{.space}.level", "[a]", {"space": "global local", "level": "L1 L2"},
             ptx=(2, 0), section="9.7.9.15"),
        Form("prefetch.priority", "prefetch{.space}.level", "[a]",
             {"space": "global", "level": "L2::evict_last L2::evict_normal"}, arch="sm_80", ptx=(7, 4),
             section="9.7.9.15"),
        Form("prefetch.uniform", "prefetchu.L1", "[a@generic]", ptx=(2, 0), section="9.7.9.15"),
        Form("prefetch.tensormap", "prefetch{.space}.tensormap", "[a]", {"space": "const param"}, arch="sm_90",
             ptx=(8, 0), section="9.7.9.15", example="prefetch.tensormap [%rd0];", narrow=True),
        Form("applypriority", "applypriority{.space}.L2::evict_normal", "[a], size:imm", {"space": "global"},
             arch="sm_80", ptx=(7, 4), section="9.7.9.16",
             ranges=_LINE, example="applypriority.global.L2::evict_normal [%rd0], 128;"),
        Form("discard", "discard{.space}.L2", "[a], size:imm", {"space": "global"}, arch="sm_80", ptx=(7, 4),
             section="9.7.9.17", ranges=_LINE, example="discard.global.L2 [%rd0], 128;"),
        Form("createpolicy.fractional", "createpolicy.fractional.primary{.secondary}.b64", ">d:b64~, fraction:f32?",
             primary, **policy),
        Form("createpolicy.range", "createpolicy.range{.space}.primary{.secondary}.b64",
             ">d:b64~, [a], primary_size:u32, total_size:u32", {**primary, "space": "global"}, **policy, narrow=True),
        Form("createpolicy.convert", "createpolicy.cvt.L2.b64", ">d:b64~, property:b64~", **policy),
    ]  # fmt: skip


FORMS: tuple[Form, ...] = (*_loads(), *_stores(), *_addresses(), *_cache_control())
"""All rows of this family."""
