"""Rows of textures and surfaces: reads, gathers, stores, reductions, queries.

PTX ISA 9.7.10 and 9.7.11. Where ptxas 13.0 takes registers of other types than the ISA lists, so do these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .schema import Form, Modifiers

_COORDINATES = {"1d": 1, "2d": 2, "3d": 4, "a1d": 2, "a2d": 4, "cube": 4, "acube": 4, "2dms": 4, "a2dms": 4}
"""Elements of the coordinates of each geometry; those of 3d and of arrays of 2d have an unused fourth."""
_OFFSETS = {"1d": 1, "2d": 2, "3d": 4, "a1d": 1, "a2d": 2, "2dms": 2, "a2dms": 2}
"""Elements of the offsets; geometries that are missing have none."""
_NO_DEPTH = ("3d", "2dms", "a2dms")
_LENGTHS: dict[str, Any] = {
    "coordinates": lambda chosen: _COORDINATES[chosen["geom"]],
    "offsets": lambda chosen: _OFFSETS.get(chosen["geom"], 0),
    "partials": lambda chosen: _OFFSETS.get(chosen["geom"], 4),
    "elements": lambda chosen: int(chosen["vec"][1:]),
}
_CLAMP = "trap clamp zero"
_SURFACES = "1d 2d 3d a1d a2d"


def _combination(offsets: bool, depth: bool, level: bool) -> Any:
    def check(chosen: Modifiers) -> str | None:
        geometry, coordinates = chosen["geom"] or "", chosen["ctype"]
        vector = "v2" if chosen["dtype"] == "f16x2" else "v4"
        if chosen["vec"] != vector:
            return f"it reads .{vector} of .{chosen['dtype']}"
        if geometry.endswith("cube") and coordinates != "f32":
            return "coordinates of a cube are .f32"
        if geometry.endswith("ms") and (coordinates != "s32" or level):
            return "a texture of several samples has coordinates of type .s32 and one level"
        if offsets and geometry not in _OFFSETS:
            return f".{geometry} has no offsets"
        if depth and (geometry in _NO_DEPTH or coordinates != "f32"):
            return "only coordinates of type .f32 of one or two dimensions or of a cube are compared with a depth"
        return None

    return check


def _reads(key: str, opcode: str, types: str, extra: str = "", level: bool = False, section: str = "9.7.10.3",
           **slots: str) -> Iterator[Form]:  # fmt: skip
    """A read of a texture: with a predicate for residency or not, with offsets and a depth to compare with or not."""
    numbers = " ".join(word for word in types.split() if word != "f32")
    for dtype, registers in ((numbers, "dtype"), ("f32", "b32")):
        for resident, since in (("", {"ptx": (4, 2)}), ("|resident:pred", {"arch": "sm_60", "ptx": (7, 1)})):
            for name, more in (("", ", offsets:s32*offsets+?"), ("depth", ", depth:b32"),
                               ("offset_depth", ", offsets:s32*offsets+, depth:b32")):  # fmt: skip
                yield Form(
                    ".".join(filter(None, (key, dtype.split()[-1], resident[1:].split(":")[0], name))), opcode,
                    f">d:{registers}*elements{resident}, [texture@texture,c:ctype*coordinates]{extra}{more}",
                    {"vec": "v4 v2", **slots, "dtype": dtype}, lengths=_LENGTHS,
                    check=_combination("offset" in name, "depth" in name, level), section=section, **since,
                )  # fmt: skip


def _textures() -> Iterator[Form]:
    types, every, coordinates = "u32 s32 f16 f16x2 f32", " ".join(_COORDINATES), "f32 s32"
    yield from _reads("tex", "tex{.base}.geom.vec.dtype.ctype", types, geom=every, ctype=coordinates)
    yield from _reads("tex.level", "tex.level.geom.vec.dtype.ctype", types, ", lod:ctype", level=True,
                      geom=every, ctype=coordinates)  # fmt: skip
    yield from _reads("tex.grad", "tex.grad.geom.vec.dtype.ctype", types, ", dpdx:b32*partials, dpdy:b32*partials",
                      level=True, geom=every, ctype=coordinates)  # fmt: skip
    yield from _reads("tld4", "tld4.comp.geom.vec.dtype.ctype", "u32 s32 f32", section="9.7.10.4",
                      comp="r g b a", geom="2d a2d cube acube", ctype="f32")  # fmt: skip


def _surfaces() -> Iterator[Form]:
    def fits(chosen: Modifiers) -> str | None:
        wide = chosen.get("vec") == "v4" and chosen["type"] == "b64"
        return "a vector has at most 128 bits" if wide else None

    place = "[surface@surface,c:s32*coordinates]"
    common: dict[str, Any] = {"ptx": (4, 2), "lengths": _LENGTHS}
    slots = {"geom": _SURFACES, "vec": "v2 v4", "type": "b8 b16 b32 b64", "clamp": _CLAMP}
    yield Form("suld.b", "suld.b.geom{.cop}{.vec}.type.clamp", f">d:type*vec, {place}",
               {**slots, "cop": "ca cg cs cv"}, check=fits, section="9.7.11.1", **common)  # fmt: skip
    for kind, types in (("b", slots["type"]), ("p", "b32")):
        stores = {**slots, "type": types, "cop": "wb cg cs wt"}
        yield Form(f"sust.{kind}", f"sust.{kind}.geom{{.cop}}{{.vec}}.type.clamp", f"{place}, a:type*vec", stores,
                   check=fits, section="9.7.11.2", **common)  # fmt: skip
    for name, kind, operations, types, since in (
        ("sured.b.add", "b", "add", "u32 s32 u64", ()), ("sured.b.min", "b", "min max", "u32 s32 u64 s64", (8, 1)),
        ("sured.b.and", "b", "and or", "b32", ()), ("sured.p", "p", "add min max and or", "b32", ()),
        ("sured.p.64", "p", "min max", "b64", (8, 1)),
    ):  # fmt: skip
        slots = {"op": operations, "geom": "1d 2d 3d", "type": types, "clamp": _CLAMP}
        late = {word: ("sm_50", since) for word in types.split() if "64" in word} if since else {}
        yield Form(name, f"sured.{kind}.op.geom.type.clamp", f"{place}, a:type", slots, needs=late,
                   section="9.7.11.3", **common)  # fmt: skip


_SIZE = "width height depth"
_OF_BOTH = f"{_SIZE} channel_data_type channel_order array_size memory_layout"
SAMPLER_QUERIES = "force_unnormalized_coords filter_mode addr_mode_0 addr_mode_1 addr_mode_2"
"""The attributes of a sampler, where it is separate from the texture."""
_QUERIES = (
    Form("txq", "txq.query.b32", ">d:b32, [a@texture]",
         {"query": f"{_OF_BOTH} normalized_coords num_mipmap_levels num_samples {SAMPLER_QUERIES}"}, ptx=(4, 2),
         section="9.7.10.5"),
    Form("txq.level", "txq.level.query.b32", ">d:b32, [a@texture], lod:s32", {"query": _SIZE}, ptx=(4, 3),
         section="9.7.10.5"),
    Form("suq", "suq.query.b32", ">d:b32, [a@surface]", {"query": _OF_BOTH}, ptx=(4, 2), section="9.7.11.4"),
)  # fmt: skip

FORMS: tuple[Form, ...] = (*_textures(), *_surfaces(), *_QUERIES)
"""All rows of this family."""
