"""Rows of Blackwell's matrix unit: `tcgen05.mma`, issued by one thread. PTX ISA 9.7.16.10.

Shapes, types and transposition are in the instruction descriptor (`isa.instruction_descriptor`), a register. The row
determines where A is (`_desc`: shared memory, `_tmem`: tensor memory), whether the accumulator's lanes are masked
(`_mask`), whether it is scaled by a power of two (`_scale`), whether A is sparse (`_sp`), and whether A and B have
scale factors (`_block`) or B stays in the unit while A streams through (`_ws`).

The rows accept what ptxas 13.0 accepts, which requires `.b32` registers for these addresses, except scaling with
`.kind::i8`, which ptxas accepts and the ISA lacks.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from ..effects import ASYNC, READS, RUN, TENSOR, UPDATES, WRITES, Access, Effect, Operand, Signalled, Starts
from .schema import Form, Modifiers
from .tcgen05 import CHIP_TARGETS, FAMILY, GROUPS, IN_THE_PAIR, PTX, TARGETS

KINDS = ("f16", "tf32", "f8f6f4", "i8")
SCALED_D = KINDS[:2]
"""Kinds whose D may be divided before the addition."""
BLOCK_KINDS = ("mxf8f6f4", "mxf4", "mxf4nvf4")
INTEGER_TARGETS = "sm_100a sm_101a sm_110a"
"""Blackwell Ultra, sm_103, has no int8."""
SCALE_TARGETS = "sm_100f"
SCALE_VECTORS = {
    "mxf8f6f4": (None, "scale_vec::1X", "block32"),
    "mxf4": (None, "scale_vec::2X", "block32"),
    "mxf4nvf4": ("scale_vec::2X", "scale_vec::4X", "block16", "block32"),
}
"""Spellings of the number of elements that share a scale factor, by kind."""
_USES = ("fill", "use", "lastuse", "discard")


def _kinds(names: tuple[str, ...]) -> str:
    return " ".join(f"kind::{name}" for name in names)


def kind_of(modifiers: Modifiers) -> str:
    """ "f16" for `.kind::f16`."""
    return str(modifiers["kind"]).removeprefix("kind::")


# -- effects -----------------------------------------------------------------------------------------------------


def _tensor(how: str, operand: str, footprint: str, **more: Any) -> Access:
    return Access(how, operand, "tensor", TENSOR, footprint, at=RUN, rank=IN_THE_PAIR, **more)


def _shared(operand: str) -> Access:
    return Access(READS, operand, "shared", ASYNC, "descriptor", at=RUN, rank=IN_THE_PAIR)


_A = {"desc": _shared("a"), "tmem": _tensor(READS, "a", "matrix_cells")}
_D = (
    _tensor(UPDATES, "d", "accumulator", when=Operand("accumulate")),
    _tensor(WRITES, "d", "accumulator"),
)
_SCALES = (_tensor(READS, "sfa", "scale_cells"), _tensor(READS, "sfb", "scale_cells"))
_METADATA = (_tensor(READS, "metadata", "metadata_cells"),)


def _effects(a: str, *more: Access) -> tuple[Effect, ...]:
    starts = Starts("umma", (Signalled(FAMILY),), pipeline="accumulator and shape")
    return (starts, _A[a], _shared("b"), *more, *_D)


# -- rows --------------------------------------------------------------------------------------------------------

_A_OPERAND = {"desc": "a:u64", "tmem": "[a@tensor:b32]"}
_METADATA_OPERAND = {False: "", True: "[metadata@tensor:b32], "}
_COMMON: dict[str, Any] = {"ptx": PTX, "unit": "tcgen05", "noun": "tcgen05.mma", "section": "9.7.16.10.9.1"}
_LANES = {"mask": lambda modifiers: 8 if modifiers["cta_group"] == "cta_group::2" else 4}
_COLLECTOR_A = " ".join(f"collector::a::{use}" for use in _USES)
_COLLECTOR_B = " ".join(f"collector::b{buffer}::{use}" for buffer in range(4) for use in _USES)
_NEEDS_I8 = {"kind::i8": (INTEGER_TARGETS, PTX)}
_BIT = {"accumulate": (range(2), "0 or 1")}


def _shifted(modifiers: Modifiers) -> str | None:
    collector = modifiers.get("collector")
    if modifiers.get("ashift") and collector in ("collector::a::fill", "collector::a::use"):
        return f".ashift moves A's rows once they are read, so that .{collector} cannot keep or reuse them"
    return None


def _plain(a: str, sparse: bool, mask: bool, scale: bool) -> Form:
    """An MMA without scale factors."""
    name = "_sp" * sparse + f"_{a}" + "_mask" * mask + "_scale" * scale
    shift = "{.ashift}" if a == "tmem" else ""
    operands = f"[d@tensor:b32], {_A_OPERAND[a]}, b:u64, {_METADATA_OPERAND[sparse]}idesc:u32, "
    operands += "mask:b32!*mask, " * mask + "accumulate:pred" + ", scale:imm" * scale
    return Form(
        f"tcgen05.mma{name}", f"tcgen05.mma{'.sp' * sparse}.cta_group.kind{shift}{{.collector}}", operands,
        {**GROUPS, "kind": _kinds(SCALED_D if scale else KINDS), "collector": _COLLECTOR_A},
        arch=SCALE_TARGETS if scale else TARGETS, needs=_NEEDS_I8, check=_shifted, lengths=_LANES,
        ranges={**_BIT, **({"scale": (range(16), "0 to 15: D is divided by two to that power")} if scale else {})},
        effects=_effects(a, *(_METADATA if sparse else ())), **_COMMON,
    )  # fmt: skip


def _vectors(modifiers: Modifiers) -> str | None:
    kind, took = kind_of(modifiers), modifiers["vector"]
    allowed = SCALE_VECTORS[kind]
    if took in allowed:
        return None
    words = " or ".join(f".{one}" for one in allowed if one)
    return f".kind::{kind} " + (f"takes {words}, not .{took}" if took else f"needs {words}")


_LATER = {"block16": (TARGETS, (8, 8)), "block32": (TARGETS, (8, 8)), "kind::mxf4nvf4": (TARGETS, (8, 7))}
_LATER["-vector"] = _LATER["block32"]
_LATER |= {f"scale_vec::{count}X": (CHIP_TARGETS, PTX) for count in (1, 2, 4)}


def _scaled(a: str, sparse: bool) -> Form:
    """An MMA with scale factors for blocks of A and B."""
    needs = dict(_LATER)
    if sparse:
        needs |= {"kind::mxf4": (CHIP_TARGETS, PTX), "kind::mxf4nvf4": (CHIP_TARGETS, (8, 7))}
    return Form(
        f"tcgen05.mma_block{'_sp' * sparse}_{a}",
        f"tcgen05.mma{'.sp' * sparse}.cta_group.kind.block_scale{{.vector}}{{.collector}}",
        f"[d@tensor:b32], {_A_OPERAND[a]}, b:u64, {_METADATA_OPERAND[sparse]}idesc:u32, "
        "[sfa@tensor:b32], [sfb@tensor:b32], accumulate:pred",
        {**GROUPS, "kind": _kinds(BLOCK_KINDS), "collector": _COLLECTOR_A,
         "vector": "scale_vec::1X scale_vec::2X scale_vec::4X block16 block32"},
        arch=TARGETS, needs=needs, check=_vectors, ranges=_BIT,
        effects=_effects(a, *(_METADATA if sparse else ()), *_SCALES), **_COMMON,
    )  # fmt: skip


def _stationary(a: str, sparse: bool) -> Form:
    """An MMA with `.ws`: M may be 32, and columns of B may be taken as zero."""
    return Form(
        f"tcgen05.mma_ws{'_sp' * sparse}_{a}", f"tcgen05.mma.ws{'.sp' * sparse}.cta_group.kind{{.collector}}",
        f"[d@tensor:b32], {_A_OPERAND[a]}, b:u64, {_METADATA_OPERAND[sparse]}idesc:u32, accumulate:pred, "
        "zeros:u64?",
        {"cta_group": "cta_group::1", "kind": _kinds(KINDS), "collector": _COLLECTOR_B},
        arch=TARGETS, needs=_NEEDS_I8, ranges=_BIT, effects=_effects(a, *(_METADATA if sparse else ())),
        **{**_COMMON, "section": "9.7.16.10.9.3"},
    )  # fmt: skip


_BOTH = (False, True)
FORMS: tuple[Form, ...] = (
    *(_plain(*choice) for choice in product(_A, _BOTH, _BOTH, _BOTH)),
    *(_scaled(*choice) for choice in product(_A, _BOTH)),
    *(_stationary(*choice) for choice in product(_A, _BOTH)),
)
