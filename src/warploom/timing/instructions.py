"""Static facts about each instruction: its pipe, machine instruction count, latency and registers.

PTX is not machine code: a 64-bit addition is two instructions, a mov between registers is usually none. The weights
here are those of ptxas 13 for each instruction in isolation; reordering, hoisting and unrolling are not modelled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..asm.nodes import Address, Operand, Pair, Register, TensorAddress, Vector
from ..emulator.machine.operation import BRANCH, EXIT, INDEXED_BRANCH, WARPGROUP, Operation
from ..emulator.machine.scopes import DeclaredRegister
from ..isa.effects import Access, Starts, Synchronises

FMA, ALU, EITHER, HALF, MUFU, CONVERT, LSU, TENSOR, FP64, CONTROL, NONE = (
    "fma", "alu", "either", "half", "mufu", "convert", "lsu", "tensor", "fp64", "control", "none",
)  # fmt: skip
"""Pipes of an SM quarter; the LSU serves all four quarters. ptxas balances integer additions between the first two
(IADD3 and IMAD); conversions run in the MUFU pipe."""
IMAD_WIDE = "imad_wide"
"""IMAD.WIDE and IMAD.HI, which take the FMA pipe twice as long as IMAD."""
_FREE = {"mov", "cvta", "nop", "pragma"}
_TRANSCENDENTAL = {
    "ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh", "div", "rem", "popc", "clz", "bfind", "brev",
    "redux",
}  # fmt: skip
_LOGIC = {
    "and", "or", "xor", "not", "lop3", "shl", "shr", "shf", "prmt", "setp", "set", "selp", "slct", "min", "max", "abs",
    "neg", "vote", "bfe", "bfi", "isspacep", "mapa", "elect", "activemask", "dp4a", "dp2a", "copysign", "fns",
}  # fmt: skip
_MEMORY = {"ld", "st", "ldu", "ldmatrix", "stmatrix", "movmatrix", "atom", "red", "shfl", "prefetch", "prefetchu"}


@dataclass(frozen=True, slots=True)
class Facts:
    """One instruction of the kernel.

    Attributes:
        pipe: the pipe it uses; count: the number of machine instructions it becomes.
        latency: name of the constant with the latency of its result: "ffma", "alu", "lds"…
        reads, writes: registers, by unique number.
        collective: executed by a whole warpgroup; backward: a backward branch; starts: starts an operation of an
        engine.
        meets: threads synchronise at it.
        flops: FLOP of a warp's matrix product; double: the product is in f64.
        machine: (pipe, machine instructions) in the build, if the build was examined (`machine_code`), or of a
        subroutine (`subroutines`).
    """

    pc: int
    opcode: str
    pipe: str
    count: float
    latency: str
    reads: frozenset[int]
    writes: frozenset[int]
    collective: bool = False
    backward: bool = False
    starts: str = ""
    meets: bool = False
    flops: int = 0
    double: bool = False
    file: str = ""
    line: int = 0
    ptx_line: int = 0
    machine: tuple[tuple[str, float], ...] | None = None


def facts_of(operation: Operation) -> Facts:
    """Return the facts about an instruction that do not depend on the run."""
    instruction = operation.instruction
    words = instruction.opcode.split(".")
    reads, writes = _registers(operation)
    backward = operation.kind == BRANCH and bool(operation.targets) and operation.targets[0] <= operation.pc
    engine = next((effect.engine for effect in operation.effects if isinstance(effect, Starts)), "")
    meets = any(isinstance(effect, Synchronises) for effect in operation.effects)
    pipe, count, latency = _cost(operation, words)
    place = instruction.location
    return Facts(
        operation.pc, instruction.opcode, pipe, count, latency, reads, writes, operation.by == WARPGROUP, backward,
        engine, meets, _flops(operation, words), "f64" in words, str(place.file) if place else "",
        place.line if place else 0, instruction.ptx_line,
    )  # fmt: skip


def _cost(operation: Operation, words: list[str]) -> tuple[str, float, str]:
    """Return (pipe, machine instruction count, name of the latency)."""
    base, last = words[0], words[-1]
    wide = last in ("u64", "s64", "b64")
    if operation.kind in (BRANCH, EXIT, INDEXED_BRANCH):
        jump = operation.kind == BRANCH and operation.instruction.guard is None
        return CONTROL, 0.0 if jump else 1.0, "alu"  # ptxas lays out blocks to fall through
    if base in _FREE or (base == "ld" and len(words) > 1 and words[1].startswith("param")):
        return NONE, 0.0, "none"
    if _is_product(words):
        return TENSOR, 1.0, "mma_sync"
    if base == "wmma":  # a load or store of a fragment: ptxas makes an instruction for each of its registers
        moved = 1 if operation.bound is None else max(len(_names(each)) for each in operation.bound.operands.values())
        return LSU, float(moved), _memory_latency(operation, base)
    if base in _MEMORY:
        return LSU, 1.0, _memory_latency(operation, base)
    if base in _TRANSCENDENTAL:
        return MUFU, 1.0, _division(words)
    if base == "cvt":
        return _conversion(words)
    if base in ("fma", "add", "sub", "mul", "mad"):
        if last == "f64":
            return FP64, 1.0, "ffma64"
        if last in ("f32", "f32x2"):
            return FMA, 1.0, "ffma"
        if last in ("f16", "f16x2", "bf16", "bf16x2"):
            return HALF, 1.0, "hfma2"
        if base in ("mul", "mad"):
            if "wide" in words or "hi" in words:
                return IMAD_WIDE, 1.0, "imad"
            return FMA, 2.0 if wide else 1.0, "imad"
        return EITHER, 2.0 if wide else 1.0, "alu"
    if base == "shl" and not wide:
        return EITHER, 1.0, "alu"  # SHF or IMAD.SHL
    if base in _LOGIC:
        return ALU, 2.0 if wide else 1.0, "alu"
    return CONTROL, 1.0, "alu"


SERIAL = ("divide", "root", "reciprocal", "divide64")
"""Latencies of instructions that become code with a branch, which a warp executes one after the other."""


def _division(words: list[str]) -> str:
    """Return the name of the latency of a division, a root or a MUFU function."""
    base, last = words[0], words[-1]
    if base in ("div", "rem") and last[0] in "us":
        return "quotient"
    if "approx" in words or base not in ("div", "rcp", "sqrt"):
        return "mufu"
    if last == "f64":
        return "divide64"
    return {"div": "divide_full" if "full" in words else "divide", "rcp": "reciprocal"}.get(base, "root")


def _conversion(words: list[str]) -> tuple[str, float, str]:
    """Return the cost of cvt: conversions between int and float use the slow pipe, except 32-bit integers to f32;
    int to int and packed halves use the fast pipe."""
    floats = [word for word in words[1:] if word[0] in "fbte" and word not in ("ftz",)]
    integers = [word for word in words[1:] if word in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")]
    if floats and integers:
        fast = floats == ["f32"] == words[-2:-1] and integers[0] in ("u32", "s32")
        return (ALU, 1.0, "alu") if fast else (CONVERT, 1.0, "convert")
    if integers and not floats:
        return (NONE, 0.0, "none") if integers in (["u64", "u32"], ["s64", "u32"]) else (ALU, 0.5, "alu")
    return ALU, 1.0, "alu"


def _memory_latency(operation: Operation, base: str) -> str:
    if base == "shfl":
        return "shuffle"
    if base in ("ldmatrix", "movmatrix"):
        return "ldmatrix"
    if base == "atom":
        return "atom"
    spaces = {effect.space for effect in operation.effects if isinstance(effect, Access)}
    return "lds" if any(str(space).startswith("shared") for space in spaces) else "ldg"


def _is_product(words: list[str]) -> bool:
    """True for mma and wmma.mma, false for wmma.load and wmma.store."""
    return words[0] == "mma" or words[:2] == ["wmma", "mma"]


def _flops(operation: Operation, words: list[str]) -> int:
    shape = next((word for word in words if word[0] == "m" and "n" in word and "k" in word and word[1].isdigit()), "")
    if not shape or not _is_product(words):
        return 0
    m, _, rest = shape[1:].partition("n")
    n, _, k = rest.partition("k")
    return 2 * int(m) * int(n) * int(k)


# -- registers -----------------------------------------------------------------------------------------------------


def _registers(operation: Operation) -> tuple[frozenset[int], frozenset[int]]:
    """Return the registers that an instruction reads and writes, by unique number."""
    reads: set[int] = set()
    writes: set[int] = set()
    guard = operation.instruction.guard
    if guard is not None:
        reads |= _numbers(operation, [guard.register])
    if operation.bound is None:
        return frozenset(reads), frozenset()
    specs = {}
    for spec in operation.bound.match.form.operands:
        specs[spec.name] = spec
        if spec.second is not None:
            specs[spec.second.name] = spec.second
    for name, operand in operation.bound.operands.items():
        access = specs[name].access if name in specs else "read"
        found = _numbers(operation, _names(operand))
        if access == "read" or isinstance(operand, (Address, TensorAddress)):
            reads |= found
        else:
            writes |= found
            if access == "modify":
                reads |= found
    return frozenset(reads), frozenset(writes)


def registers_in(operation: Operation, operands: Sequence[Operand]) -> frozenset[int]:
    """Return the registers that operands name, by unique number."""
    return frozenset(_numbers(operation, [name for one in operands for name in _names(one)]))


def _numbers(operation: Operation, names: list[str]) -> set[int]:
    """Return the numbers of declared registers; special registers (%tid) have none."""
    found = (operation.scope.find(name) for name in names)
    return {hash(one.row) for one in found if isinstance(one, DeclaredRegister)}


def _names(operand: Operand) -> list[str]:
    if isinstance(operand, Register):
        return [operand.name]
    if isinstance(operand, Vector):
        return [name for element in operand.elements for name in _names(element)]
    if isinstance(operand, Pair):
        return [*_names(operand.first), *_names(operand.second)]
    if isinstance(operand, Address):
        return _names(operand.base) if isinstance(operand.base, Register) else []
    if isinstance(operand, TensorAddress):
        return [*_names(operand.base), *(name for one in operand.coordinates for name in _names(one))]
    return []
