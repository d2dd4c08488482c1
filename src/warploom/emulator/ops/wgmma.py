"""wgmma: a warpgroup's asynchronous multiply-accumulate. PTX ISA 9.7.15.

An instruction in flight owns its accumulator. Operands in shared memory are read when the operation executes, A in
registers at issue. The operations of a warpgroup execute in order; one that uses the accumulator of another in flight
takes its result without a wait. Any other instruction that names an accumulator in flight waits for it: the ISA calls
that undefined, but ptxas inserts the wait (its note C7517) or serialises the MMAs of the function (C7510 to C7515).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import numpy as np

from ...errors import InvalidOperandError, VerificationError
from ...isa import dtypes
from ...isa.fragments import Fragment, warpgroup_a, warpgroup_d, warpgroup_metadata
from ...isa.instructions.mma import shape_of
from ..engines import sparse_rows
from ..engines.matrix_operands import OperandPlace, SharedOperand, chunks_of
from ..machine.async_operation import AsyncOperation
from ..machine.frame import Frame, Issuer
from ..machine.groups import groups_of, neighbours
from ..machine.machine import FULL
from ..machine.memory import Region
from ..machine.places import Rows
from ..machine.register_list import RegisterList
from ..machine.registers import WARP
from ..machine.slots import Slot
from ..machine.units import WARPGROUP_MMA
from ..numerics.tensor_core import NO_NUMERICS, Product, multiply_accumulate
from ..numerics.tensor_registers import gather, scatter
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .fences import fence
from .group_waits import commit, wait_for_groups
from .mma import BITS

HANDLERS = Handlers()
HANDLERS.add("wgmma.fence")(fence)  # registers are in order anyway
POISON = np.uint32(0xFFFFFFFF)
_SIGN: dict[int, np.generic] = {8: np.uint8(0x80), 16: np.uint16(0x8000), 32: np.uint32(0x80000000)}


# -- what a CTA keeps ----------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Accumulator:
    """The accumulator of one or more operations in flight.

    Attributes:
        matrix: (64, n) raw bits after the completed operations; None before the first if that one ignores it.
        users: operations in flight that use it; newest: the last of them.
        rows: its registers.
    """

    matrix: np.ndarray | None
    users: int = 0
    newest: AsyncOperation | None = None
    rows: frozenset[tuple[int, int]] = frozenset()

    def settle(self, frame: Frame) -> None:
        """Complete its operations, and those before them."""
        operation, chain = self.newest, list[AsyncOperation]()
        while operation is not None and not operation.done:
            chain.append(operation)
            operation = operation.after[0] if operation.after else None
        for one in reversed(chain):
            frame.machine.engine.finish(one)


@dataclass(eq=False)
class Warpgroup:
    """Operations in flight of one warpgroup: the newest operation, and accumulators by the registers they own."""

    newest: AsyncOperation | None = None
    accumulators: dict[object, Accumulator] = field(default_factory=dict)


@dataclass(eq=False)
class WgmmaState:
    """The warpgroups of a CTA."""

    warpgroups: dict[int, Warpgroup] = field(default_factory=dict)

    def warpgroup(self, first_warp: int) -> Warpgroup:
        found = self.warpgroups.get(first_warp // 4)
        if found is None:
            found = self.warpgroups[first_warp // 4] = Warpgroup()
        return found

    def digest(self) -> Hashable:
        return tuple(
            (number, repr(owner), accumulator.users, None if matrix is None else matrix.tobytes())
            for number, group in sorted(self.warpgroups.items())
            for owner, accumulator in group.accumulators.items()
            for matrix in (accumulator.matrix,)
        )


WARPGROUPS = Slot("wgmma", lambda cta: WgmmaState())


# -- the multiply ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Multiply:
    """A decoded wgmma.mma_async.

    Attributes:
        kind: the arithmetic; n, k: the shape, m is 64.
        d: accumulator registers; owner: their identity for chains; fragment: the thread that holds each element.
        a_registers, a_fragment: A in registers; or None, and `a_slot` with `a`: A by a descriptor.
        scale_d: reads the predicate that says whether D is added.
        flip_a, flip_b: sign bits to flip, or None.
        d_rows, a_rows: the registers as locations.
        metadata: for a sparse A: thread and shift of each group, and the register; None for a dense A.
        checked: valid descriptors, by their operand and the value that all threads hold.
    """

    kind: Product
    n: int
    k: int
    d: RegisterList
    owner: object
    fragment: Fragment
    a_registers: RegisterList | None
    a_fragment: Fragment
    a_slot: int
    a: SharedOperand
    b_slot: int
    b: SharedOperand
    scale_d: Callable[[Frame], np.ndarray]
    flip_a: np.generic | None
    flip_b: np.generic | None
    d_rows: Rows
    a_rows: Rows
    metadata: tuple[np.ndarray, np.ndarray, int] | None = None
    checked: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def issue(self, frame: Frame) -> None:
        """The step: check, read what is read at issue, put the operation in flight."""
        cta, machine = frame.cta, frame.machine
        group = WARPGROUPS.of(cta).warpgroup(frame.first_warp)
        adds = self._uniform_flag(frame)
        b_descriptor = self._descriptor(frame, "b", self.b_slot, self.b)
        a_descriptor, a_matrix = 0, None
        for owner, other in list(group.accumulators.items()):
            if owner != self.owner and not (other.rows.isdisjoint(self.d_rows.rows | self.a_rows.rows)):
                other.settle(frame)
        if self.a_registers is None:
            a_descriptor = self._descriptor(frame, "a", self.a_slot, self.a)
        else:
            a_matrix = gather(self.a_registers.read(frame), self.a_fragment)[0]
        where = None
        if self.metadata is not None and machine.numerics != NO_NUMERICS:  # otherwise there are no values
            where = self._places(frame, *self.metadata)
        accumulator = group.accumulators.get(self.owner)
        if accumulator is None:
            before = gather(self.d.read(frame), self.fragment)[0] if adds else None
            accumulator = group.accumulators[self.owner] = Accumulator(before, rows=self.d_rows.rows)
            self.d.write_all(frame, np.full((len(self.d), 1), POISON))
        accumulator.users += 1
        operands: list[np.ndarray] = []

        def read(part: int, parts: int) -> None:
            if part == 0:
                left = a_matrix if a_matrix is not None else self.a.read(cta.shared, a_descriptor)
                left = left if where is None else sparse_rows.dense(left, where, self.k)
                operands[:] = [left, self.b.read(cta.shared, b_descriptor)]

        def write(part: int, parts: int) -> None:
            if part == 0:
                self._execute(frame, group, accumulator, operands, adds, where)

        after = (group.newest,) if group.newest is not None and not group.newest.done else ()
        operation = AsyncOperation(
            WARPGROUP_MMA,
            Issuer.of(frame),
            f"{frame.instruction.opcode} of warps {frame.first_warp}-{frame.first_warp + 3}",
            read=read,
            write=write,
            after=after,
            flops=2 * 64 * self.n * self.k,
        )
        group.newest = accumulator.newest = operation
        if machine.events.issued:
            self._name_places(operation, cta.shared, a_descriptor, b_descriptor, adds)
        for warp in range(frame.first_warp, frame.first_warp + 4):
            groups_of("wgmma", cta, warp).add(operation, FULL)
        machine.counters.count_products("wgmma", 1, operation.flops)
        machine.engine.submit(operation)

    def _name_places(self, operation: AsyncOperation, shared: Region, a: int, b: int, adds: bool) -> None:
        """Report to observers what the operation reads and writes; `a`, `b`: the descriptors."""
        sources: list[object] = [self.a_rows]
        if self.a_registers is None:
            sources = [OperandPlace("a", shared, self.a, self.a.at(a))]
        sources.append(OperandPlace("b", shared, self.b, self.b.at(b)))
        if adds:
            sources.append(self.d_rows)
        operation.sources, operation.targets = tuple(sources), (self.d_rows,)
        operation.pipeline = (self.owner, f"m64n{self.n}k{self.k}")

    def _execute(
        self, frame: Frame, group: Warpgroup, accumulator: Accumulator, operands: list[np.ndarray], adds: bool,
        where: np.ndarray | None,
    ) -> None:  # fmt: skip
        left, right = operands
        if self.flip_a is not None:
            left = left ^ self.flip_a
        if self.flip_b is not None:
            right = right ^ self.flip_b
        before = accumulator.matrix if adds else None

        def multiply(left: np.ndarray, right: np.ndarray) -> np.ndarray:
            return multiply_accumulate(left, right, before, self.kind, frame.machine.numerics)

        kinds = (self.kind.a, self.kind.b, self.kind.accumulator)
        if where is None:
            accumulator.matrix = multiply(left, right)
        else:
            accumulator.matrix = sparse_rows.multiplied(left, right, before, where, kinds, multiply)
        accumulator.users -= 1
        if accumulator.users == 0:
            if group.accumulators.get(self.owner) is accumulator:
                del group.accumulators[self.owner]
            self.d.write_all(frame, scatter(accumulator.matrix[None], self.fragment))

    def _places(self, frame: Frame, threads: np.ndarray, shifts: np.ndarray, slot: int) -> np.ndarray:
        """The positions along k of the stored elements of a sparse A, (64, k / 2)."""
        words = np.broadcast_to(np.asarray(frame.values[slot]), (4 * WARP,))
        one_of_two = self.kind.a == "tf32"
        try:
            found = sparse_rows.meaningful((words[threads] >> shifts & 15).astype(np.uint8), one_of_two)
        except InvalidOperandError as error:
            frame.error(InvalidOperandError, error.what, expected=error.expected, consequence=error.consequence)
        return sparse_rows.places_along(found, self.k, one_of_two)

    # -- checks --------------------------------------------------------------------------------------------------

    def _uniform_flag(self, frame: Frame) -> bool:
        flags = np.asarray(self.scale_d(frame))
        first = bool(flags.flat[0])
        if flags.ndim and np.count_nonzero(flags) not in (0, flags.size):
            lane = int(np.flatnonzero(flags != first)[0])
            frame.error(
                InvalidOperandError,
                "scale-d differs between the threads of the warpgroup",
                lane,
                expected=f"{first} as in its first thread",
                got=not first,
            )
        return first

    def _descriptor(self, frame: Frame, name: str, slot: int, operand: SharedOperand) -> int:
        """The descriptor's value, checked: the same in all threads, no reserved bits, inside shared memory."""
        value = frame.values[slot]
        raw = value.tobytes()
        known = self.checked.get((name, raw))
        if known is not None:
            return known
        bits = int(value.flat[0]) if isinstance(value, np.ndarray) else int(value)
        if isinstance(value, np.ndarray) and np.count_nonzero(value != value[0]):
            lane = int(np.flatnonzero(value != value[0])[0])
            frame.error(
                InvalidOperandError,
                f"the descriptor of {name} differs between the threads of the warpgroup",
                lane,
                expected=f"{bits:#018x} as in its first thread",
                got=f"{int(value[lane]):#018x}",
            )
        chunks_of(frame, operand, name, bits, [frame.cta])
        self.checked[name, raw] = bits
        return bits


def owner_of(registers: RegisterList) -> object:
    """A key that is equal for register lists that name the same registers in the same order."""
    if registers.rows is None:
        return registers.slots
    if isinstance(registers.rows, slice):
        return (registers.bits, registers.rows.start, registers.rows.stop)
    return (registers.bits, registers.rows.tobytes())


_NAMES = ("f16_f32", "f16_f16", "bf16", "tf32", "fp8_f32", "fp8_f16", "int8", "b1")


_SPARSE = tuple(f"sp_{name}" for name in _NAMES if name != "b1")


@HANDLERS.add(*(f"wgmma.{name}_{place}" for name in (*_NAMES, *_SPARSE) for place in ("desc", "regs")))
def mma_async(d: Decode) -> Step:
    key, place = d.match.form.key.removeprefix("wgmma.").rsplit("_", 1)
    name, sparse = key.removeprefix("sp_"), key.startswith("sp_")
    _, n, k = shape_of(d.modifiers)
    complaint = d.match.form.check(d.modifiers) if d.match.form.check else None
    if complaint:
        d.error(VerificationError, complaint)
    fixed = "f16" if name.startswith("f16") else name
    a_type, b_type = d.modifier("atype", fixed), d.modifier("btype", fixed)
    accumulator = "s32" if name in ("int8", "b1") else "f16" if name.endswith("_f16") else "f32"
    saturate = bool(d.modifier("satfinite") or d.modifier("saturate"))
    kind = Product(a_type, b_type, accumulator, "wgmma", saturate, "and" if name == "b1" else "multiply")
    bits = BITS[a_type]
    dtype = {32: dtypes.b32, 16: dtypes.b16}.get(bits, dtypes.b8)
    in_registers, stored = place == "regs", k // 2 if sparse else k
    registers = d.registers("d", dtypes.b32)
    owner = owner_of(registers)
    d.code.before_use.append((registers.place().rows, d.code.fact(("settled", owner), lambda: _settled(owner))))
    return Multiply(
        kind=kind,
        n=n,
        k=k,
        d=registers,
        owner=owner,
        fragment=warpgroup_d(n, BITS[accumulator]),
        a_registers=d.registers("a", dtypes.b32) if in_registers else None,
        a_fragment=warpgroup_a(bits),
        a_slot=-1 if in_registers else d.source("a", dtypes.b64),
        a=SharedOperand(bits, 64, stored, "MN" if _immediate(d, "ta", (0, 1)) else "K", dtype),
        b_slot=d.source("b", dtypes.b64),
        b=SharedOperand(bits, n, k, "MN" if _immediate(d, "tb", (0, 1)) else "K", dtype),
        scale_d=d.predicate("scale_d"),
        flip_a=_SIGN[bits] if _immediate(d, "ia", (1, -1)) == -1 else None,
        flip_b=_SIGN[bits] if _immediate(d, "ib", (1, -1)) == -1 else None,
        d_rows=registers.place(),
        a_rows=d.registers("a", dtypes.b32).place() if in_registers else Rows(frozenset()),
        metadata=(*warpgroup_metadata(bits, d.constant("sel")), d.source("meta", dtypes.b32)) if sparse else None,
    ).issue


def _settled(owner: object) -> Callable[[Frame], None]:
    """Completes the operations of a frame's warpgroups that use this accumulator, and those before them."""

    def settle(frame: Frame) -> None:
        state = WARPGROUPS.of(frame.cta)
        for number in range(frame.first_warp // 4, (frame.first_warp + frame.warps + 3) // 4):
            group = state.warpgroups.get(number)
            accumulator = group.accumulators.get(owner) if group is not None else None
            if accumulator is not None:
                accumulator.settle(frame)

    return settle


def _immediate(d: Decode, name: str, allowed: tuple[int, int]) -> int:
    """An immediate operand, `allowed[0]` if the form has none."""
    if not d.has(name):
        return allowed[0]
    value = d.constant(name)
    if value not in allowed:
        words = {"ia": "imm-scale-a", "ib": "imm-scale-b", "ta": "imm-trans-a", "tb": "imm-trans-b"}
        d.error(VerificationError, f"{words[name]} must be {allowed[0]} or {allowed[1]}", got=value)
    return value


# -- ordering ------------------------------------------------------------------------------------------------------


@HANDLERS.add("wgmma.commit_group")
def commit_group(d: Decode) -> Step:
    d.operation.together = lambda frame: neighbours("wgmma", frame)
    return lambda frame: commit(frame, "wgmma")


@HANDLERS.add("wgmma.wait_group")
def wait_group(d: Decode) -> Step:
    allowed = d.constant("n")
    d.operation.together = lambda frame: neighbours("wgmma", frame)
    return lambda frame: wait_for_groups(frame, "wgmma", allowed)
