"""Mutations of kernels for Blackwell: tcgen05, its commits, columns and pairs."""

from __future__ import annotations

from dataclasses import replace

from warploom.asm.nodes import Address, Instruction, Integer, Register, Statement

from .mutations import Facts, Mutation, Rewrite, _change_operand, _drop, _starts, _with

HALF_AN_ATOM = 8
"""Error in columns of an accumulator's address."""
_EVEN = 0xFEFFFFFF


def _twice(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return [(instruction, instruction)]


def _mask(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """A multicast commit without the first CTA of the pair, without the second, with one that is not there."""
    made: list[Rewrite] = []
    for bit in (1, 2, 4):
        made += _change_operand(instruction, 1, "xor.b16", bit, lambda value, bit=bit: value ^ bit, "b16")  # type: ignore[misc]
    return made


def _columns(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """An address in tensor memory, a few columns further."""
    for at, operand in enumerate(instruction.operands):
        if isinstance(operand, Address):
            moved = replace(operand, offset=operand.offset + HALF_AN_ATOM)
            return [
                (replace(instruction, operands=(*instruction.operands[:at], moved, *instruction.operands[at + 1 :])),)
            ]
    return []


def _adds(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """The first product accumulates onto uninitialised memory."""
    at = len(instruction.operands) - 1
    flag = instruction.operands[at]
    first = isinstance(flag, Register) or (isinstance(flag, Integer) and flag.value == 0)
    return [(_with(instruction, at, Integer(1)),)] if first else []


def _half_the_bytes(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """The bytes of one CTA where both are expected."""
    count = instruction.operands[-1]
    if not isinstance(count, Integer) or count.value % 32:
        return []
    return [(_with(instruction, len(instruction.operands) - 1, Integer(count.value // 2)),)]


def _ungrouped(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    words = [word for word in instruction.opcode.split(".") if word != "cta_group::2"]
    return [(replace(instruction, opcode=".".join(words)),)]


def _own_barrier(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """The CTA's own barrier instead of the leader's."""
    if not isinstance(instruction.operands[-1], Integer) or instruction.operands[-1].value & 0xFFFFFFFF != _EVEN:
        return []
    return [(replace(instruction, opcode="mov.b32", operands=instruction.operands[:2]),)]


def _wrong_size(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """Half the columns freed, or allocated."""
    count = instruction.operands[-1]
    if not isinstance(count, Integer) or count.value < 64:
        return []
    return [(_with(instruction, len(instruction.operands) - 1, Integer(count.value // 2)),)]


def _of_one_quarter(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    """Scale factors in only one quarter of the lanes: 32 rows copied as if they were the first of 128."""
    opcode = instruction.opcode.replace("32x128b.warpx4", "4x256b")
    return [(replace(instruction, opcode=opcode),)]


def _is_commit(instruction: Instruction) -> bool:
    return instruction.opcode.startswith("tcgen05.commit")


MUTATIONS: tuple[Mutation, ...] = (
    Mutation("drop-tensor-commit", _is_commit, _drop),
    Mutation("double-commit", _is_commit, _twice),
    Mutation("change-commit-mask", lambda i: _is_commit(i) and ".multicast" in i.opcode, _mask),
    Mutation("drop-tensor-wait", _starts("tcgen05.wait"), _drop),
    Mutation("drop-tensor-fence", _starts("tcgen05.fence"), _drop),
    Mutation("drop-dealloc", _starts("tcgen05.dealloc"), _drop),
    Mutation("drop-alloc", _starts("tcgen05.alloc"), _drop),
    Mutation("wrong-columns", _starts("tcgen05.dealloc", "tcgen05.alloc"), _wrong_size),
    Mutation("move-columns", _starts("tcgen05.mma", "tcgen05.ld"), _columns),
    Mutation("accumulate-first", _starts("tcgen05.mma"), _adds),
    Mutation("bytes-of-one-cta", _starts("mbarrier.arrive.expect_tx"), _half_the_bytes),
    Mutation(
        "drop-load-group", lambda i: i.opcode.startswith("cp.async.bulk") and "cta_group::2" in i.opcode, _ungrouped
    ),
    Mutation("own-barrier", _starts("and.b32"), _own_barrier),
    Mutation("drop-request", _starts("clusterlaunchcontrol.try_cancel"), _drop),
    Mutation("scales-in-one-quarter", lambda i: "32x128b.warpx4" in i.opcode, _of_one_quarter),
)
"""All mutations of single instructions."""


def commit_too_early(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """A commit, moved before the last product that it should cover."""
    commit = body[at]
    assert isinstance(commit, Instruction)
    if not _is_commit(commit):
        return None
    for before in range(at - 1, max(at - 60, -1), -1):
        statement = body[before]
        if isinstance(statement, Instruction) and statement.opcode.startswith("tcgen05.mma"):
            return (*body[:before], commit, *body[before:at], *body[at + 1 :])
    return None


def release_before_load(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """The first arrival after a tcgen05.wait::ld, moved before it."""
    wait = body[at]
    assert isinstance(wait, Instruction)
    if not wait.opcode.startswith("tcgen05.wait::ld"):
        return None
    for later in range(at + 1, min(at + 40, len(body))):
        statement = body[later]
        if isinstance(statement, Instruction) and statement.opcode.startswith("tcgen05.ld"):
            return None
        if isinstance(statement, Instruction) and statement.opcode.startswith("mbarrier.arrive"):
            return (*body[:at], *body[at + 1 : later + 1], wait, *body[later + 1 :])
    return None


ORDERS = {
    "tensor-commit-too-early": ("the commit comes before the last product it was to cover", commit_too_early),
    "release-before-load": ("the arrival comes before the wait for the loads", release_before_load),
}
