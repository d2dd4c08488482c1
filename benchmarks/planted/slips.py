"""Further rules: an index that jumps, a missing guard, a thread that leaves or skips a barrier, an adjacent barrier,
exchanged coordinates, a store instead of an atomic.

Each is a bug of synchronisation or memory in the resulting text; the kernel's values may be wrong as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from warploom.asm.nodes import (
    Address,
    Block,
    Guard,
    Instruction,
    Integer,
    Operand,
    Register,
    RegisterDeclaration,
    TensorAddress,
)

from ..zoo.mutations import Facts, Mutation, Rewrite

MEMORY = ("ld", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "mbarrier")
MBARRIER = 8
"""Bytes of an mbarrier, the distance to the next one of an array."""


def _starts(*prefixes: str) -> Callable[[Instruction], bool]:
    return lambda instruction: instruction.opcode.startswith(prefixes)


def _with(instruction: Instruction, at: int, operand: Operand) -> Instruction:
    return replace(instruction, operands=(*instruction.operands[:at], operand, *instruction.operands[at + 1 :]))


def _moved(instruction: Instruction, at: int, amount: int) -> Rewrite:
    operand = instruction.operands[at]
    assert isinstance(operand, Address)
    return (_with(instruction, at, replace(operand, offset=operand.offset + amount)),)


# -- guards and threads --------------------------------------------------------------------------------------------


def _unguarded(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return [(replace(instruction, guard=None),)]


def _guarded_memory(instruction: Instruction) -> bool:
    return instruction.guard is not None and instruction.opcode.split(".")[0] in MEMORY


def _other_way(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    assert instruction.guard is not None
    return [(replace(instruction, guard=replace(instruction.guard, negated=not instruction.guard.negated)),)]


def _for_lane_0(then: str) -> Callable[[Instruction, Facts], list[Rewrite]]:
    """Before an instruction, the first lane of each warp exits or skips it."""

    def change(instruction: Instruction, facts: Facts) -> list[Rewrite]:
        if instruction.guard is not None:
            return []
        lane, first = Register("%the_lane"), Register("%the_first")
        declared = (RegisterDeclaration("u32", (lane.name,)), RegisterDeclaration("pred", (first.name,)))
        asked = (
            Instruction("mov.u32", (lane, Register("%laneid")), location=instruction.location),
            Instruction("setp.eq.u32", (first, lane, Integer(0)), location=instruction.location),
        )
        if then == "exit":
            leaves = Instruction("exit", (), Guard(first.name), instruction.location)
            return [(Block((*declared, *asked, leaves, instruction)),)]
        return [(Block((*declared, *asked, replace(instruction, guard=Guard(first.name, True)))),)]

    return change


# -- addresses -----------------------------------------------------------------------------------------------------


def _misaligned(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """An address two bytes further, if more than two bytes are accessed at once."""
    words = instruction.opcode.split(".")
    wide = any(word in ("v2", "v4", "b32", "u32", "f32", "s32", "b64", "u64", "f64") for word in words)
    at = next((at for at, one in enumerate(instruction.operands) if isinstance(one, Address)), -1)
    return [_moved(instruction, at, 2)] if at >= 0 and wide else []


def _next_barrier(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    at = next((at for at, one in enumerate(instruction.operands) if isinstance(one, Address)), -1)
    return [_moved(instruction, at, MBARRIER)] if at >= 0 else []


def _other_signal(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A copy that signals the barrier next to the right one."""
    at = max((at for at, one in enumerate(instruction.operands) if isinstance(one, Address)), default=-1)
    return [_moved(instruction, at, MBARRIER)] if at > 0 else []


def _other_stride(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A row, stage or element of half or twice the width."""
    at = len(instruction.operands) - (1 if instruction.opcode.startswith(("shl", "mul")) else 2)
    factor = instruction.operands[at]
    if not isinstance(factor, Integer) or factor.value < 2 or factor.value > 1 << 20:
        return []
    if instruction.opcode.startswith("shl"):
        return [(_with(instruction, at, Integer(factor.value + step)),) for step in (-1, 1)]
    return [(_with(instruction, at, Integer(value)),) for value in (factor.value // 2, factor.value * 2)]


def _no_swizzle(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """The swizzle is missing: the XOR of an address is omitted."""
    if any(isinstance(one, Integer) for one in instruction.operands[1:]):
        return []  # of two registers; with a constant it may be a phase or a negation
    words = instruction.opcode.split(".")
    return [(replace(instruction, opcode=f"mov.{words[-1]}", operands=instruction.operands[:2]),)]


# -- tensor copies -------------------------------------------------------------------------------------------------


def _exchanged(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """The two inner coordinates of a tensor copy are exchanged."""
    for at, one in enumerate(instruction.operands):
        if isinstance(one, TensorAddress) and len(one.coordinates) > 1:
            first, second, *rest = one.coordinates
            return [(_with(instruction, at, replace(one, coordinates=(second, first, *rest))),)]
    return []


def _transposed(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """ldmatrix or stmatrix with .trans added or removed."""
    words = instruction.opcode.split(".")
    if "trans" in words:
        words.remove("trans")
    else:
        words.insert(next(at for at, word in enumerate(words) if word in ("x1", "x2", "x4")) + 1, "trans")
    return [(replace(instruction, opcode=".".join(words)),)]


def _smaller_copy(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """cp.async of half the bytes."""
    size = instruction.operands[2]
    if not isinstance(size, Integer) or size.value not in (8, 16) or len(instruction.operands) > 3:
        return []
    opcode = instruction.opcode.replace(".cg.", ".ca.").replace(".L2::128B", "")
    return [(replace(_with(instruction, 2, Integer(size.value // 2)), opcode=opcode),)]


def _other_space(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A proxy fence for the other memory."""
    return [(replace(instruction, opcode="fence.proxy.async.global"),)]


# -- atomics, shuffles ---------------------------------------------------------------------------------------------


def _stored(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A reduction in memory replaced by a store of the operand."""
    words = instruction.opcode.split(".")
    space = next((word for word in words if word in ("global", "shared")), "")
    kind = words[-1]
    if "add" not in words or not re.fullmatch(r"[usf](32|64)", kind) or any(word in ("v2", "v4") for word in words):
        return []
    operands = instruction.operands[1:] if words[0] == "atom" else instruction.operands
    opcode = f"st.{space}.{kind}" if space else f"st.{kind}"
    return [(replace(instruction, opcode=opcode, operands=operands[:2]),)] if words[0] == "red" else []


def _other_lane(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A shuffle from twice the distance."""
    step = instruction.operands[2]
    if not isinstance(step, Integer) or not 0 < step.value <= 16:
        return []
    return [(_with(instruction, 2, Integer(step.value * 2 % 32 or 1)),)]


def _left_out(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return [()]


def _twice(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return [(instruction, instruction)]


SLIPS = (
    Mutation("drop-guard", _guarded_memory, _unguarded),
    Mutation("negate-guard", _guarded_memory, _other_way),
    Mutation("thread-leaves-early", _starts("bar.sync", "barrier.sync", "mbarrier.arrive."), _for_lane_0("exit")),
    Mutation("lane-goes-round", _starts("bar.sync", "barrier.sync", "cp.async.commit_group", "cp.async.wait_group",
                                        "bar.warp.sync", "fence.proxy.async"), _for_lane_0("round")),
    Mutation("misaligned", _starts("ld.shared", "st.shared", "ld.global", "st.global", "ldmatrix", "stmatrix"),
             _misaligned),
    Mutation("next-barrier", _starts("mbarrier.arrive", "mbarrier.try_wait", "mbarrier.test_wait"), _next_barrier),
    Mutation("other-signal", lambda i: "mbarrier::complete_tx" in i.opcode, _other_signal),
    Mutation("other-stride", _starts("shl.b32", "shl.b64", "mul.lo", "mul.wide", "mad.lo", "mad.wide"), _other_stride),
    Mutation("drop-swizzle", _starts("xor.b32", "xor.b64"), _no_swizzle),
    Mutation("exchanged-coordinates", _starts("cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor"), _exchanged),
    Mutation("other-trans", _starts("ldmatrix.", "stmatrix."), _transposed),
    Mutation("smaller-copy", lambda i: i.opcode.startswith(("cp.async.cg", "cp.async.ca")), _smaller_copy),
    Mutation("other-fence", _starts("fence.proxy.async.shared"), _other_space),
    Mutation("reduction-becomes-store", _starts("red."), _stored),
    Mutation("other-lane", _starts("shfl.sync.bfly", "shfl.sync.down", "shfl.sync.up"), _other_lane),
    Mutation("drop-init", _starts("mbarrier.init"), _left_out),
    Mutation("twice", _starts("mbarrier.init", "mbarrier.arrive"), _twice),
)  # fmt: skip
