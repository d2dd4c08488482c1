"""Instructions as expressions: `ptx.math`, `ptx.warp`, `ptx.atomic` return their result in a new register.

p = ptx.math.ex2(ptx.math.fma(s, scale, -m))        instead of a declaration and a `ptx.inst` each
"""

from __future__ import annotations

from typing import Any

from ..isa import dtypes
from ..isa.dtypes import DType
from .control import if_
from .emit import issue
from .predicate import Predicate
from .trace import Trace
from .values import Number, Register

_ALL_LANES = -1
_HARDLY_EVER = 0x7FC0_DEAD
"""A NaN with a payload that arithmetic does not produce."""
Value = Register | Number


def _registers(*values: Any) -> Register:
    """The first register among the operands, whose type the instruction gets."""
    for value in values:
        if isinstance(value, Register):
            return value
    raise Trace.current().error("an expression needs at least one register", got=repr(values))


def _emit(opcode: str, dtype: DType, *operands: Any, pred: Predicate | None = None) -> Register:
    trace = Trace.current()
    result = Register(trace, dtype)
    issue(opcode, result, *operands, pred=pred, trace=trace)
    return result


class Math:
    """`ptx.math`: arithmetic of f32 and integers (PTX ISA 9.7.1, 9.7.3)."""

    def fma(self, a: Value, b: Value, c: Value) -> Register:
        """fma.rn: a * b + c, rounded once. f32, f16, bf16 or f64."""
        dtype = _registers(a, b, c).dtype
        return _emit(f"fma.rn.{dtype}", dtype, a, b, c)

    def add(self, a: Value, b: Value) -> Register:
        """a + b, like the operator."""
        return _registers(a, b) + (b if isinstance(a, Register) else a)

    def max(self, a: Value, b: Value) -> Register:
        """max: the larger of two f32; if one of them is NaN, the other one."""
        dtype = _registers(a, b).dtype
        return _emit(f"max.{dtype}", dtype, a, b)

    def min(self, a: Value, b: Value) -> Register:
        """min: the smaller of two f32; if one of them is NaN, the other one."""
        dtype = _registers(a, b).dtype
        return _emit(f"min.{dtype}", dtype, a, b)

    def abs(self, a: Register) -> Register:
        """abs.<type>."""
        return _emit(f"abs.{a.dtype}", a.dtype, a)

    def ex2(self, a: Register) -> Register:
        """ex2.approx.ftz.f32: 2^a, 2 ulp; subnormal operands and results become 0."""
        return _emit("ex2.approx.ftz.f32", dtypes.f32, a)

    def lg2(self, a: Register) -> Register:
        """lg2.approx.ftz.f32: the logarithm to base 2."""
        return _emit("lg2.approx.ftz.f32", dtypes.f32, a)

    def rcp(self, a: Register) -> Register:
        """rcp.approx.ftz.f32: 1 / a, 1 ulp; subnormal operands and results become 0."""
        return _emit("rcp.approx.ftz.f32", dtypes.f32, a)


class Warp:
    """`ptx.warp`: shuffles and votes within a warp; all 32 lanes must call it (PTX ISA 9.7.9.6, 9.7.13.9)."""

    def _shuffle(self, mode: str, value: Register, lane: int | Register, clamp: int) -> Register:
        if value.dtype.register_bits != 32:
            raise value.trace.error("a shuffle moves 32-bit registers", got=repr(value))
        return _emit(f"shfl.sync.{mode}.b32", value.dtype, value, lane, clamp, _ALL_LANES)

    def shuffle_xor(self, value: Register, distance: int | Register) -> Register:
        """shfl.sync.bfly: the value of the lane whose index differs in the bits of `distance`."""
        return self._shuffle("bfly", value, distance, 31)

    def shuffle_up(self, value: Register, distance: int | Register) -> Register:
        """shfl.sync.up: the value of the lane `distance` below; the thread's own value if there is none."""
        return self._shuffle("up", value, distance, 0)

    def shuffle(self, value: Register, lane: int | Register) -> Register:
        """shfl.sync.idx: the value of one lane, in all lanes."""
        return self._shuffle("idx", value, lane, 31)

    def _vote(self, mode: str, condition: Predicate) -> Predicate:
        trace = Trace.current()
        result = Predicate(trace)
        issue(f"vote.sync.{mode}.pred", result, condition, _ALL_LANES, trace=trace)
        return result

    def any(self, condition: Predicate) -> Predicate:
        """vote.sync.any: true if it holds in some lane."""
        return self._vote("any", condition)

    def all(self, condition: Predicate) -> Predicate:
        """vote.sync.all: true if it holds in every lane."""
        return self._vote("all", condition)

    def ballot(self, condition: Predicate) -> Register:
        """vote.sync.ballot.b32: one bit per lane, set if the condition holds there."""
        return _emit("vote.sync.ballot.b32", dtypes.b32, condition, _ALL_LANES)

    def sync(self) -> None:
        """bar.warp.sync: synchronise all lanes; each sees what the others wrote before."""
        issue("bar.warp.sync", _ALL_LANES)


class Atomic:
    """`ptx.atomic`: read-modify-write in memory; returns the old value (PTX ISA 9.7.13.7)."""

    def _emit(self, op: str, address: Any, value: Value, dtype: DType, order: str, scope: str, pred: Any) -> Register:
        return _emit(f"atom.{order}.{scope}.global.{op}.{dtype}", dtype, address, value, pred=pred)

    def add(
        self, address: Any, value: Value, dtype: DType = dtypes.u32, *, order: str = "relaxed", scope: str = "gpu",
        pred: Predicate | None = None,
    ) -> Register:  # fmt: skip
        """atom.<order>.<scope>.global.add: add `value` to [address] and return the old value.

        order: "relaxed", "acquire", "release" or "acq_rel". scope: "cta", "cluster", "gpu" or "sys".
        """
        return self._emit("add", address, value, dtype, order, scope, pred)

    def inc(
        self, address: Any, last: Value, *, order: str = "relaxed", scope: str = "gpu", pred: Predicate | None = None
    ) -> Register:
        """atom.<order>.<scope>.global.inc.u32: count up to `last`, then wrap to 0: a counter that resets itself.

        Returns the old value.
        """
        return self._emit("inc", address, last, dtypes.u32, order, scope, pred)


def pin(*registers: Register) -> None:
    """Keep the computation of 32-bit values before the code that follows, above all before a wait for MMAs.

    ptxas moves arithmetic across waits, and so may leave the other units idle while it waits. It does not move operands
    of a branch. So the values are combined (xor.b32) and compared with a pattern that they practically never form; a
    warp in which one does (vote.sync.any) sleeps for zero time (nanosleep.u32 0). Costs one instruction per value, plus
    three. `kernel.resources(sass=True).between_waits` shows where the arithmetic went.
    """
    if not registers or any(register.dtype.register_bits != 32 for register in registers):
        raise Trace.current().error("ptx.pin takes 32-bit registers", got=repr(registers))
    mixed = registers[0].view(dtypes.b32)
    for register in registers[1:]:
        mixed = mixed ^ register.view(dtypes.b32)
    with if_(warp.any(mixed.view(dtypes.u32) == _HARDLY_EVER)):
        issue("nanosleep.u32", 0)


math, warp, atomic = Math(), Warp(), Atomic()
