"""Reads launch facts that a compiler leaves next to a text, or in a kernel's name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..asm.mangled import Name, flat, parsed
from ..isa import arch

CUTLASS_TYPES = {
    "bfloat16_t": "bf16", "half_t": "f16", "tfloat32_t": "tf32", "float_e4m3_t": "e4m3", "float_e5m2_t": "e5m2",
    "f32": "f32", "f64": "f64", "s8": "s8", "u8": "u8", "s32": "s32",
}  # fmt: skip
LARGEST_SHARED = arch.get("sm_90a").shared_per_cta
"""Maximum bytes of dynamic shared memory of a CTA on sm_90: CUTLASS takes as many stages as fit."""


@dataclass(frozen=True)
class Map:
    """A tensor map: element type, box innermost first, swizzle; "" and () if unknown. `sure`: True if box and swizzle
    are known, False if they are only likely."""

    dtype: str = ""
    box: tuple[int, ...] = ()
    swizzle: str = ""
    sure: bool = False


@dataclass(frozen=True)
class Hints:
    """Facts about a launch that are not in the text.

    Attributes:
        source: their origin, in words for a comment.
        threads, cluster, dynamic_smem, dependent: 0, (), None and False if the source says nothing.
        sure: True if `dynamic_smem` is known, False if it is an upper bound.
        loads, stores: tensor maps, in the order of the parameters.
        scratch: names of the last parameters, which the launcher adds.
        facts: sentences for the head of the description.
    """

    source: str = ""
    threads: int = 0
    cluster: tuple[int, ...] = ()
    dynamic_smem: int | None = None
    sure: bool = True
    dependent: bool = False
    loads: tuple[Map, ...] = ()
    stores: tuple[Map, ...] = ()
    maps: tuple[Map, ...] = ()
    scratch: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


def hints(entry: str, text: Path | None) -> Hints:
    """The hints for a kernel: Triton's metadata next to its text, or what the name of a CUTLASS kernel says."""
    return (triton(entry, text) if text is not None else None) or cutlass(entry) or Hints()


# -- Triton --------------------------------------------------------------------------------------------------------


def triton(entry: str, text: Path) -> Hints | None:
    """Triton's `KERNEL.json`, which its cache keeps next to `KERNEL.ptx`; None if there is none for this kernel."""
    named = [text.with_name(f"{entry}.json")] if entry.isidentifier() else []  # a function in Python
    for path in (text.with_suffix(".json"), *named):
        try:
            facts = json.loads(path.read_text(encoding="utf-8-sig"))
        except (OSError, ValueError):
            continue
        if isinstance(facts, dict) and facts.get("name") == entry and isinstance(facts.get("num_warps"), int):
            return _of_metadata(facts, path.name)
    return None


def _of_metadata(facts: Mapping[str, Any], name: str) -> Hints:
    warps, size = facts["num_warps"], facts.get("warp_size", 32)
    cluster = facts.get("cluster_dims") or (facts.get("num_ctas", 1), 1, 1)
    described = facts.get("tensordesc_meta") or ()
    maps = tuple(_triton_map(one) for one in described if isinstance(one, dict))
    scratch = tuple(
        f"{kind} scratch, {facts.get(f'{kind}_scratch_size', 0)} bytes for each CTA" for kind in ("global", "profile")
    )
    return Hints(
        source=name, threads=warps * size, cluster=tuple(cluster), dynamic_smem=facts.get("shared", 0),
        dependent=bool(facts.get("launch_pdl")), maps=maps, scratch=scratch,
        facts=(f"Triton {facts.get('triton_version', '')}: {warps} warps, {facts.get('num_stages', '?')} stages",),
    )  # fmt: skip


def _triton_map(one: Mapping[str, Any]) -> Map:
    """`elem_type` and `swizzle` are the codes of tensormap.replace (PTX ISA 9.7.9.28), `block_size` is outermost
    first."""
    codes = {6: "f16", 7: "f32", 10: "bf16", 11: "tf32", 0: "u8", 1: "u16", 2: "u32", 3: "s32", 4: "u64", 5: "s64"}
    swizzles = {0: "NONE", 1: "32B", 2: "64B", 3: "128B"}
    return Map(
        codes.get(one.get("elem_type", -1), ""), tuple(reversed(one.get("block_size", ()))),
        swizzles.get(one.get("swizzle", 0), "128B"), sure=True,
    )  # fmt: skip


# -- CUTLASS -------------------------------------------------------------------------------------------------------


def cutlass(entry: str) -> Hints | None:
    """What the mangled name of a CUTLASS 3 kernel says: cluster, tile and element types; None for any other kernel."""
    name = parsed(entry)
    found = {part.last: part for part in name.walk() if part.scope[:1] == ("cutlass",)} if name else {}
    loop = found.get("CollectiveMma")
    if loop is None or len(loop.args) < 5:
        return None
    policy, tile, a, _, b = list(flat(loop.args))[:5]
    policy_numbers = [one for one in flat(policy.args) if isinstance(one, int)] if isinstance(policy, Name) else []
    stages = policy_numbers[:1]
    shapes = [sizes(one) for one in flat(policy.args)] if isinstance(policy, Name) else []
    cluster = next((shape for shape in shapes if len(shape) == 3), ())
    extents = sizes(tile)
    types = [_element(one) for one in (a, b)]
    facts = [f"CUTLASS: {policy.last if isinstance(policy, Name) else '?'}"]
    if stages:
        facts.append(f"{stages[0]} stages")
    if len(extents) == 3:
        facts.append(f"a tile of {' x '.join(map(str, extents))} (M, N, K)")
    facts.append(f"A is {types[0] or '?'}, B is {types[1] or '?'}")
    loads, stores = _maps(types, extents, found.get("CollectiveEpilogue"))
    return Hints(
        source="the kernel's name", cluster=cluster, dynamic_smem=LARGEST_SHARED, sure=False, loads=loads,
        stores=stores, facts=(", ".join(facts),),
    )  # fmt: skip


def _maps(
    types: Sequence[str], tile: tuple[int, ...], epilogue: Name | None
) -> tuple[tuple[Map, ...], tuple[Map, ...]]:
    """Maps of A, B and C, and of D. Their boxes are those of a whole tile, without multicast."""
    if len(tile) != 3:
        return (), ()
    m, n, k = tile
    loads = [_map(kind, k, rows) for kind, rows in zip(types, (m, n), strict=True)]
    out = next((found for one in flat(epilogue.args) if (found := _element(one))), "") if epilogue else ""
    return (*loads, _map(out, n, m)), (_map(out, n, m),)


def _map(dtype: str, columns: int, rows: int) -> Map:
    bits = {"bf16": 16, "f16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8}.get(dtype, 32)
    return Map(dtype, (min(columns, 128 * 8 // bits), rows), "128B")


def sizes(part: object) -> tuple[int, ...]:
    """The sizes in a `cute::Shape` of constants; () for anything else."""
    if not isinstance(part, Name) or part.scope != ("cute", "tuple"):
        return ()
    found = [one.args[0] for one in flat(part.args) if isinstance(one, Name) and one.last == "C" and len(one.args) == 1]
    return tuple(one for one in found if isinstance(one, int)) if len(found) == len(list(flat(part.args))) else ()


def _element(part: object) -> str:
    return CUTLASS_TYPES.get(part.last if isinstance(part, Name) else str(part), "")
