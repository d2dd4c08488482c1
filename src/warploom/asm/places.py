"""Operands of a row in words; variables as operands and addresses: where ptxas takes one, of which state space.

PTX ISA 6.6 (addresses of variables), 9.7.9.20 (cvta), 9.7.9.23-24 (mapa, getctarank); what these leave open was tried
with ptxas 13.0.
"""

from __future__ import annotations

from ..isa import dtypes
from ..isa.instructions.schema import Match, OperandSpec

TAKES_NAMES = {"mov", "cvta", "mapa", "getctarank"}
"""The instructions whose operand `a` may be the address of a variable; all others take registers there."""
NO_32_BIT_ADDRESSES = 90
"""From this target on, ptxas refuses 32-bit addresses of generic and global memory ("32-Bit ABI is not supported")."""
BARE_ADDRESSES = ("tensor.",)
"""The keys of rows whose addresses may stand without brackets, and mean the same (ptxas 13.0)."""
_WIDE = {
    "ld", "ldu", "st", "atom", "red", "multimem", "prefetch", "prefetchu", "applypriority", "discard", "mbarrier",
    "tcgen05", "clusterlaunchcontrol",
}  # fmt: skip
"""The instructions of which it does, and two families of which we do on purpose: half an address is none. The others
take the 32 bits for the whole address."""
_NARROW = ("async_store.", "prefetch.tensormap")
"""Keys of rows among those of `_WIDE` whose generic and global addresses may stand in 32-bit registers all the same."""


def takes_name(row: Match, spec: OperandSpec) -> bool:
    """Whether an operand may be the address of a variable."""
    return row.form.base in TAKES_NAMES and spec.name == "a" and spec.access == "read" and row.form.key != "cvta.to"


def name_misfit(row: Match, spec: OperandSpec, kind: str, space: str, target: int) -> str | None:
    """What should stand in the place of a name that an operand is, or None where it fits.

    Args:
        kind, space: what the name means: a "variable" and its state space, a "function", a "label".
        target: the number of the target.
    """
    base = row.form.base
    wanted = dtypes.ALL.get(row.type_of(spec))
    if kind == "label":
        return "the name of a variable or a function"
    if base != "mov":
        own = "shared" if base in ("mapa", "getctarank") else (row.modifiers.get("space") or "").split("::")[0]
        return None if kind == "variable" and space == own else f"a .{own} variable"
    if spec.length is not None or wanted is None:
        return "a register"
    if not (wanted.is_integer or wanted.kind is dtypes.Kind.BITS):
        return f"a .{wanted.name} register"
    if space == "global" and wanted.bits == 32 and target >= NO_32_BIT_ADDRESSES:
        return "64 bits for the address of a .global variable"
    return None


def spaces(row: Match, space: str) -> tuple[str, ...]:
    """The state spaces whose variables an address may name; () where any may be named."""
    if space not in ("", "generic"):
        return (space.split("::")[0],)
    if row.form.base == "fence":
        return ()
    return ("shared",) if row.form.base == "mbarrier" else ("global", "shared", "local")


def takes_32_bits(row: Match, space: str, target: int) -> bool:
    """Whether an address in this space may stand in a 32-bit register."""
    if target < NO_32_BIT_ADDRESSES or space not in ("", "generic", "global"):
        return True
    form = row.form
    return form.base not in _WIDE or form.key.startswith(_NARROW)


def expected_operands(match: Match) -> str:
    """The operands of a row as text for messages: `d, a, b`."""
    parts = []
    for spec in match.form.operands:
        text = f"{spec.name}|{spec.second.name}" if spec.second else spec.name
        if spec.kind == "address":
            text = f"[{text}]"
        elif spec.kind == "tensor_address":
            text = f"[{text}, {{coordinates}}]"
        length = match.length_of(spec)
        if length is not None:
            text = f"{{{length} of {text}}}"
        parts.append(f"({text})" if spec.optional else text)
    return ", ".join(parts) or "no operand"
