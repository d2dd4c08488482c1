"""What the instructions of a text show about a launch beside its addresses: threads, types of values, and which arrays
hold counters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..asm import nodes
from .launch_steps import Steps

_MOST_THREADS = 1024
_WARP, _WARPGROUP = 32, 128
_APART = "the threads that the text tells apart"
_PRODUCT = re.compile(r"\.(e4m3|e5m2|bf16|f16|tf32|f32|f64|s32|s8|u8)(?=\.|$)")
_POLLED = re.compile(r"^ld\.(volatile|acquire|relaxed)\b")


def threads_shown(function: nodes.Function) -> tuple[int, str]:
    """The fewest threads of a CTA, in whole warps, that the text needs, and what shows them; 0 if nothing does."""
    steps = Steps(function)
    found = ((-(-least // _WARP) * _WARP, why) for why, least in _least(steps))
    return max((one for one in found if one[0] <= _MOST_THREADS), default=(0, ""))


def _least(steps: Steps) -> Iterator[tuple[str, int]]:
    roles = any(one.opcode.startswith("mbarrier.init") for one in steps.instructions)
    bounds = []
    elected = list(_arrivals(steps))
    for at, one in enumerate(steps.instructions):
        word = one.opcode.split(".")[0]
        if word in ("bar", "barrier") and ".cluster" not in one.opcode and ".warp" not in one.opcode:
            place = 2 if ".red" in one.opcode else 1
            if len(one.operands) > place + (".red" in one.opcode):
                yield "the threads that a barrier counts", steps.constant(one.operands[place], at) or 0
        elif one.opcode.startswith("mbarrier.init"):
            count, base = steps.constant(one.operands[1], at) or 0, steps.place(one.operands[0], at)[0]
            leaders = any(base == other or -1 in (base, other) for other in elected)
            by = _WARP if leaders and count > 1 else 1
            yield f"the {'warps' if by > 1 else 'threads'} that arrive on an mbarrier", count * by
        elif word == "setp":
            shift, bound = steps.thread(one.operands[1], at), steps.constant(one.operands[2], at)
            if shift is not None and bound is not None and bound > 0:
                comparison = one.opcode.split(".")[1]
                if comparison in ("eq", "ne"):
                    yield _APART, bound + 1 << shift
                else:
                    bounds.append(bound + (comparison in ("gt", "le", "hi", "ls")) << shift)
    for bound in bounds:
        if roles and bound % _WARP == 0:  # the other answer is that of a warp, or a warpgroup, of another role
            yield _APART, bound + (_WARPGROUP if bound % _WARPGROUP == 0 else _WARP)
        elif bound // 2 in bounds:  # steps of a tree; one bound may be that of a loop
            yield _APART, 2 * bound


def _arrivals(steps: Steps) -> Iterator[str | int]:
    """The barriers at which elected lanes arrive, each for its warp. An arrival is guarded, or follows a guarded
    branch."""
    branch: tuple[nodes.Guard | None, int] = (None, 0)
    for at, one in enumerate(steps.instructions):
        if one.opcode.startswith("bra"):
            branch = (one.guard, at)
        elif one.opcode.startswith("mbarrier.arrive") and "expect_tx" not in one.opcode:
            if steps.elected(one.guard, at) or steps.elected(*branch):
                yield from (steps.place(part, at)[0] for part in one.operands if isinstance(part, nodes.Address))


def operand_type(function: nodes.Function) -> str:
    """The type of the first operand of a text's matrix products, if all have the same; otherwise ""."""
    found = set()
    for one in nodes.instructions_of(function):
        types = _PRODUCT.findall(one.opcode) if one.opcode.split(".")[0].endswith("mma") else ()
        if len(types) > 2:  # result, first operand, second operand
            found.add(types[1])
    return found.pop().replace("tf32", "f32") if len(found) == 1 else ""


def is_counter(opcode: str) -> bool:
    """True for an instruction on a counter or flag: an atomic operation, or a load that polls."""
    return opcode.split(".")[0] in ("atom", "red") or _POLLED.match(opcode) is not None


_FLOATS = re.compile(r"\.(f16x2|bf16x2|f16|bf16|f32|f64)(?=\.|$)")
_INTEGERS = re.compile(r"\.([su](?:8|16|32|64))(?=\.|$)")
_MOVES = ("mov", "shfl", "selp")
_NO_ARITHMETIC = ("ld", "st", "atom", "red", "cp", "prmt", "ldmatrix", "stmatrix")
_ROUNDS = 3
"""Moves between an instruction on numbers and the memory that they come from."""


def types_of_values(instructions: Sequence[nodes.Instruction]) -> Mapping[str, str]:
    """The element types of registers by the arithmetic on them, whatever loads and stores call them: that of floats
    where there is any, otherwise of integers."""
    floats: dict[str, str] = {}
    integers: dict[str, str] = {}
    for one in instructions:
        for names, kind in _arithmetic(one):
            (floats if kind[0] in _FLOAT else integers).update(dict.fromkeys(names, kind))
    moves = [one for one in instructions if one.opcode.split(".")[0] in _MOVES]
    for _ in range(_ROUNDS):
        for one in moves:
            moved = [name for operand in one.operands[:2] for name in nodes.names_in(operand)]
            kind = next((floats[name] for name in moved if name in floats), "")
            if kind:
                for name in moved:
                    floats.setdefault(name, kind)
    return integers | floats


_FLOAT = "fbe"
"""How the names of float types begin: f32, bf16, e4m3."""


def _arithmetic(one: nodes.Instruction) -> Iterator[tuple[Iterator[str], str]]:
    """(Registers, element type) of what an instruction computes with."""
    word = one.opcode.split(".")[0]
    if word in _MOVES or word in _NO_ARITHMETIC:
        return
    if word.endswith("mma"):
        for operand, kind in zip(one.operands[1:3], _PRODUCT.findall(one.opcode)[1:3], strict=False):
            if word == "mma":
                yield nodes.names_in(operand), kind.replace("tf32", "f32")
        return
    types = [found.removesuffix("x2") for found in _FLOATS.findall(one.opcode)]
    integers = _INTEGERS.findall(one.opcode)
    if word == "cvt":
        ends = [found for found in one.opcode.split(".") if found.removesuffix("x2") in (*types, *integers)]
        if len(ends) == 2:
            yield nodes.names_in(one.operands[0]), ends[0].removesuffix("x2")
            for operand in one.operands[1:]:
                yield nodes.names_in(operand), ends[1].removesuffix("x2")
        return
    for operand in one.operands if types else one.operands[1:3]:
        if types or integers:
            yield nodes.names_in(operand), (types or integers)[-1]


def stored_in_shared(instructions: Sequence[nodes.Instruction]) -> frozenset[str]:
    """The registers whose bits are stored to shared memory."""
    stores = (one for one in instructions if one.opcode.startswith("st.") and ".shared" in one.opcode)
    return frozenset(name for one in stores for operand in one.operands[1:] for name in nodes.names_in(operand))
