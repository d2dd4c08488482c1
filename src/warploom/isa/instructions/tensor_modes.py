"""Rows of tensor copies whose box is not a rectangle of the array: gathered rows, scattered rows, im2col.

PTX ISA 9.7.9.27.1.2 to .4. A gather takes five coordinates: one of columns and four of rows. im2col takes one offset
per spatial dimension; im2col::w and im2col::w::128 take a halo and an offset of the innermost dimension.
"""

from __future__ import annotations

from typing import Any

from .bulk_copy import (
    ANY_OF_PAIR,
    BOX,
    BYTES,
    CTA_DESTINATION,
    MULTICAST,
    OF_PAIRS,
    OPERATIONS,
    PAIR,
    REDUCE_BOX,
    SM90,
    TILE,
    TO_BOX,
    loads,
    stores,
    through_map,
    with_hint,
)
from .schema import Form, Modifiers

FAMILIES = "sm_100f sm_101f sm_110f"
_LATE: dict[str, Any] = {"arch": FAMILIES, "ptx": (8, 6)}
_SPATIAL = {"dim": "3d 4d 5d"}
_TO = {"to": "shared::cluster shared::cta"}
_WIDTH = {"mode": "im2col::w im2col::w::128"}
_SECTION = "9.7.9.27.1.2"


def _offsets(modifiers: Modifiers) -> int:
    """The number of offsets: one per dimension except channels and images."""
    return int(str(modifiers["dim"])[0]) - 2


_OFFSETS = {"n": _offsets}
_COORDINATES = {"2d": "{%r1, %r2, %r3, %r4, %r5}", "3d": "{%r1, %r2, %r3}"}


def _fetches(
    key: str, dim: str, mode: str, info: str, slots: dict[str, str], shown: str, **rest: Any
) -> tuple[Form, ...]:
    """The rows of one mode: to one CTA, and to several.

    `info`: the operand that the mode takes; `shown`: the mode and that operand in the examples.
    """
    words, operand = shown.split(" ") if " " in shown else (shown, "")
    first = dim if dim[0].isdigit() else "3d"
    given = f"[%r0], [%rd0, {_COORDINATES[first]}], [%r6]{operand}"
    single = f"cp.async.bulk.tensor.{first}.shared::cluster.global.{words}{BYTES}"
    needs = {**CTA_DESTINATION, **OF_PAIRS, **rest.pop("needs", {})}
    made = through_map(loads(BOX, "shared_box", barrier=ANY_OF_PAIR))
    several = through_map(loads(BOX, "shared_box", "mask:mask", barrier=ANY_OF_PAIR))
    return (
        *with_hint(
            f"tensor.load_{key}", f"cp.async.bulk.tensor.{dim}.to.global.{mode}{BYTES}{{.cta_group}}",
            f"[dst@shared::cluster], [map,c], [mbar@shared::cluster]{info}", slots={**slots, **_TO, **PAIR},
            needs=needs, section=_SECTION, **made, **rest, example=f"{single} {given};",
        ),
        *with_hint(
            f"tensor.load_{key}_multicast",
            f"cp.async.bulk.tensor.{dim}.shared::cluster.global.{mode}{BYTES}{MULTICAST}{{.cta_group}}",
            f"[dst@shared::cluster], [map,c], [mbar@shared::cluster]{info}, mask:u16", slots={**slots, **PAIR},
            needs=needs, section=_SECTION, **several, **{**rest, **rest.get("multicast", {})},
            example=f"{single}{MULTICAST} {given}, %h9;",
        ),
    )  # fmt: skip


def _prefetch(key: str, dim: str, mode: str, info: str, slots: dict[str, str], example: str, **rest: Any) -> Any:
    return with_hint(
        f"tensor.prefetch_{key}", f"cp.async.bulk.prefetch.tensor.{dim}.L2.global.{mode}", f"[map,c]{info}",
        slots=slots, section="9.7.9.27.1.4", example=example, **rest,
    )  # fmt: skip


_GATHER = "tile::gather4"
_TO_CLUSTER = {"shared::cluster": (FAMILIES, (8, 6))}
"""Plain sm_100 and sm_120 gather, and copy with a halo, into their own CTA only."""


def _halos(**rest: Any) -> tuple[Form, ...]:
    slots = {**_SPATIAL, **_WIDTH}
    return _fetches("im2col_w", "dim", "mode", ", offsets:u16*2", slots, "im2col::w ,{%h0,%h1}", **rest)


FORMS: tuple[Form, ...] = (
    *_fetches("gather4", "2d", _GATHER, "", {}, _GATHER, arch="sm_100", ptx=(8, 6), needs=_TO_CLUSTER)[:2],
    *_fetches("gather4", "2d", _GATHER, "", {}, _GATHER, **_LATE)[2:],
    *_fetches("im2col", "dim", "im2col", ", offsets:u16*n", _SPATIAL, "im2col ,{%h0}", lengths=_OFFSETS, **SM90),
    *_halos(arch="sm_100", ptx=(8, 6), needs={**_TO_CLUSTER, "im2col::w::128": (FAMILIES, (8, 6))})[:2],
    *_halos(**_LATE)[2:],
    *with_hint(
        "tensor.store_scatter4", "cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group",
        "[map,c], [src@shared]", section=_SECTION, **_LATE, **through_map(stores(TILE, TO_BOX)),
        example="cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group "
        "[%rd0, {%r1, %r2, %r3, %r4, %r5}], [%r6];",
    ),
    *with_hint(
        "tensor.store_im2col", "cp.async.bulk.tensor.dim.global.shared::cta.im2col_no_offs.bulk_group",
        "[map,c], [src@shared]", slots=_SPATIAL, section=_SECTION, **SM90, **through_map(stores(TILE, TO_BOX)),
        example="cp.async.bulk.tensor.3d.global.shared::cta.im2col_no_offs.bulk_group [%rd0, {%r1, %r2, %r3}], [%r6];",
    ),
    *with_hint(
        "tensor.reduce_im2col", "cp.reduce.async.bulk.tensor.dim.global.shared::cta.op.im2col_no_offs.bulk_group",
        "[map,c], [src@shared]", slots={**_SPATIAL, "op": OPERATIONS}, section="9.7.9.27.1.3", **SM90,
        **through_map(stores(TILE, REDUCE_BOX)),
        example="cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.im2col_no_offs.bulk_group "
        "[%rd0, {%r1, %r2, %r3}], [%r6];",
    ),
    *_prefetch(
        "gather4", "2d", _GATHER, "", {},
        f"cp.async.bulk.prefetch.tensor.2d.L2.global.{_GATHER} [%rd0, {_COORDINATES['2d']}];", **_LATE,
    ),
    *_prefetch(
        "im2col", "dim", "im2col", ", offsets:u16*n", _SPATIAL,
        f"cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [%rd0, {_COORDINATES['3d']}], {{%h0}};", lengths=_OFFSETS,
        **SM90,
    ),
    *_prefetch(
        "im2col_w", "dim", "mode", ", offsets:u16*2", {**_SPATIAL, **_WIDTH},
        f"cp.async.bulk.prefetch.tensor.3d.L2.global.im2col::w [%rd0, {_COORDINATES['3d']}], {{%h0, %h1}};", **_LATE,
    ),
)  # fmt: skip
