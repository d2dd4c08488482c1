"""The instructions that depend on a changed one, at which a finding must point.

group waits, commits, fences, barriers   everything between the previous one of its kind and the next
arrivals on named barriers               waits on the barrier
operations on mbarriers                  all operations on the same barriers, accesses that follow their waits, and
                                         accesses that their arrivals release
addresses and descriptors                all users
griddepcontrol.wait                      all accesses to global memory
cluster barriers                         all accesses to other CTAs
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warploom.asm.nodes import Address, Instruction, Integer, Operand, Register, Symbol, TensorAddress, Vector, walk

from .kernels import Subject
from .mutate import Mutant

ACCESSES = (
    "cp.async.", "cp.reduce.", "wgmma.mma_async", "ld.shared", "st.shared", "ldmatrix", "stmatrix", "atom.shared",
    "red.shared",
)  # fmt: skip
GLOBAL = ("ld.global", "st.global", "atom.", "red.")
NO_ACCESS = ("commit_group", "wait_group", "wait_all")
WAITS = ("mbarrier.try_wait", "mbarrier.test_wait")
AROUND = {
    "drop-proxy-fence": ("fence.proxy.async",),
    "drop-wgmma-fence": ("wgmma.fence",),
    "drop-fence": ("fence", "membar"),
    "drop-barrier": ("bar.sync", "barrier.sync"),
}
GROUPS = ("drop-commit", "drop-wgmma-wait", "drop-copy-wait", "drop-store-wait", "wait-for-less", "wait-before-commit",
          "commit-too-early", "release-before-wait", "wait-for-reads-only")  # fmt: skip


class Sites:
    """The places of one kernel."""

    def __init__(self, subject: Subject) -> None:
        self.code = [i for function in subject.module.entries for i in walk(function.body or ()) if _is(i)]
        self._at = {instruction.ptx_line: at for at, instruction in enumerate(self.code)}
        self._made: dict[str, list[Instruction]] = {}
        for instruction in self.code:
            for name in _registers(instruction.operands[:1]):
                self._made.setdefault(name, []).append(instruction)
        self._barriers = {at: self._barrier(instruction) for at, instruction in enumerate(self.code)}
        self._arrays = {base for at, base in self._barriers.items() if base is not None and self._is_indexed(at)}

    def of(self, mutant: Mutant) -> set[int]:
        """PTX lines at which a finding about this mutant may point."""
        at = self._at[mutant.instruction.ptx_line]
        return {self.code[at].ptx_line} | {self.code[other].ptx_line for other in self._of(mutant, at)}

    def turns(self, mutant: Mutant) -> set[int]:
        """PTX lines of all operations on the same named barrier, if threads arrive there without waiting."""
        found = [self.code[at] for at in self._same_named(mutant.instruction)]
        arrive = any(instruction.opcode.startswith(("bar.arrive", "barrier.arrive")) for instruction in found)
        return {instruction.ptx_line for instruction in found} if arrive else set()

    def _same_named(self, barrier: Instruction) -> list[int]:
        number = barrier.operands[:1]
        return self._where(lambda i: i.opcode.startswith(("bar.", "barrier.")) and i.operands[:1] == number)

    def _of(self, mutant: Mutant, at: int) -> Iterable[int]:
        opcode = mutant.instruction.opcode
        if mutant.kind in GROUPS:
            return self._of_group(at, opcode)
        if mutant.kind in AROUND:
            same = AROUND[mutant.kind]
            wanted = _all_accesses_and_waits if mutant.kind == "drop-barrier" else _accesses_and_waits
            return self._around(at, lambda i: i.opcode.startswith(same), wanted, wanted)
        if mutant.kind == "drop-grid-wait":
            return self._where(lambda i: ".global" in i.opcode)
        if mutant.kind == "drop-turn":
            return self._same_named(mutant.instruction)
        if mutant.kind.startswith("drop-cluster") or mutant.kind == "drop-init-fence":
            return self._where(lambda i: _remote(i) or i.opcode.startswith(("mbarrier", "barrier.cluster")))
        if mutant.kind in ("change-swizzle", "next-stage", "ring-length"):
            return self._users(at)
        return self._of_barrier(at)

    # -- around ------------------------------------------------------------------------------------------------

    def _of_group(self, at: int, opcode: str) -> Iterable[int]:
        """The operations that a commit or a wait is for, and the accesses behind it that rely on them."""
        unit = "cp.async.bulk." if "bulk" in opcode else "cp.async." if opcode.startswith("cp.") else "wgmma."
        units = (unit, "cp.reduce.") if unit == "cp.async.bulk." else (unit,)  # both join bulk groups
        word = unit + ("commit" if "commit" in opcode else "wait")

        def mine(instruction: Instruction) -> bool:
            other_unit = unit == "cp.async." and instruction.opcode.startswith("cp.async.bulk")
            return _accesses(instruction) and instruction.opcode.startswith(units) and not other_unit

        return self._around(at, lambda i: i.opcode.startswith(word), mine, _accesses, self._left(at, unit + "wait"))

    def _left(self, at: int, wait: str) -> int:
        """How many groups the wait at or after a place leaves in flight: it is for those before them."""
        waits = (i.operands[:1] for i in self.code[at:] if i.opcode.startswith(wait))
        return next((count[0].value for count in waits if count and isinstance(count[0], Integer)), 0)

    def _around(
        self,
        at: int,
        same: Callable[[Instruction], bool],
        before: Callable[[Instruction], bool],
        behind: Callable[[Instruction], bool],
        left: int = 0,
    ) -> Iterable[int]:
        """Those wanted before up to the same again, likewise behind; each way at least to the first wanted one.

        Before it `left` more times up to the same.
        """
        for step, wanted, more in ((-1, before, left), (1, behind, 0)):
            found, here = False, at + step
            while 0 <= here < len(self.code):
                if wanted(self.code[here]):
                    found = True
                    yield here
                elif found and same(self.code[here]):
                    if not more:
                        break
                    found, more = False, more - 1
                here += step

    def _where(self, wanted: Callable[[Instruction], bool]) -> list[int]:
        return [at for at, instruction in enumerate(self.code) if wanted(instruction)]

    # -- barriers ----------------------------------------------------------------------------------------------

    def _barrier(self, instruction: Instruction) -> int | None:
        """The start of the array of an operation's barrier, as far as the text tells."""
        if instruction.opcode.startswith("mbarrier.") or ".mbarrier::" in instruction.opcode:
            for operand in reversed(instruction.operands):
                if isinstance(operand, Address):
                    return self._place(operand.base) + operand.offset
        return None

    def _place(self, operand: Operand, depth: int = 0) -> int:
        """The constant part of an address."""
        if isinstance(operand, Symbol):
            return (hash(operand.name) & 0xFFFF) << 32 | operand.offset
        if isinstance(operand, Integer):
            return operand.value
        if not isinstance(operand, Register) or depth > 8:
            return 0
        for made in self._made.get(operand.name, []):
            word = made.opcode.partition(".")[0]
            sources = {"mad": made.operands[3:], "mapa": made.operands[1:2], "mul": (), "shl": ()}
            return sum(self._place(source, depth + 1) for source in sources.get(word, made.operands[1:]))
        name = operand.name
        return 0 if name.startswith("%") else (hash(name) & 0xFFFF) << 32

    def _array(self, at: int) -> int | None:
        """The array that contains a barrier operand: the last one that is indexed and begins before it."""
        base = self._barriers[at]
        return max((start for start in self._arrays if base is not None and start <= base), default=base)

    def _is_indexed(self, at: int) -> bool:
        """True if the barrier is chosen by a register from an array."""
        if self._barriers[at] is None or self.code[at].opcode.startswith("mbarrier.init"):
            return False
        todo, seen = list(_registers(op for op in self.code[at].operands if isinstance(op, Address))), set()
        while todo:
            name = todo.pop()
            for made in self._made.get(name, ()) if name not in seen else ():
                if made.opcode.startswith(("mad.", "mul.", "shl.")):
                    return True
                todo += _registers(made.operands[1:])
            seen.add(name)
        return False

    def _of_barrier(self, at: int) -> Iterable[int]:
        array = self._array(at)
        for other, base in self._barriers.items():
            if base is not None and self._array(other) == array:
                yield other
                if self.code[other].opcode.startswith(WAITS):
                    yield from self._guarded(other)
                elif self.code[other].opcode.startswith("mbarrier.arrive"):
                    yield from self._told(other)

    def _told(self, arrival: int) -> Iterable[int]:
        """What an arrival releases: the accesses since the wait before it."""
        for here in range(arrival - 1, -1, -1):
            if self.code[here].opcode.startswith(WAITS):
                return
            if _accesses(self.code[here]):
                yield here

    def _guarded(self, wait: int) -> Iterable[int]:
        """What a wait acquires: the accesses and arrivals up to the next wait."""
        for here in range(wait + 1, len(self.code)):
            if self.code[here].opcode.startswith(WAITS):
                return
            if _accesses_and_waits(self.code[here]):
                yield here

    # -- values ------------------------------------------------------------------------------------------------

    def _users(self, at: int) -> Iterable[int]:
        """All users of an instruction's result or counter; if a user is a barrier, also its users."""
        first = self.code[at]
        names = set(_registers(first.operands[:1] if not first.opcode.startswith("setp") else first.operands[1:2]))
        for _ in range(6):
            for instruction in self.code:
                if names & set(_registers(instruction.operands[1:])) and not _accesses(instruction):
                    names |= set(_registers(instruction.operands[:1]))
        used = [
            other
            for other, instruction in enumerate(self.code)
            if names & set(_registers(instruction.operands)) and _accesses_and_waits(instruction)
        ]
        buffers = {self._buffer(other) for other in used} - {None}
        for other in used:
            yield other
            if self._barriers[other] is not None:
                yield from self._of_barrier(other)
        for other in range(len(self.code)):
            if self._buffer(other) in buffers:
                yield other

    def _buffer(self, at: int) -> int | None:
        """The start of the buffer that an instruction of the generic proxy accesses, as far as the text tells."""
        instruction = self.code[at]
        if not instruction.opcode.startswith(("ld", "st", "cp.async.c")) or not _accesses(instruction):
            return None
        operands = instruction.operands[:1] if instruction.opcode.startswith("cp") else instruction.operands
        address = next((operand for operand in operands if isinstance(operand, Address)), None)
        return None if address is None else self._place(address.base)


def _is(statement: object) -> bool:
    return isinstance(statement, Instruction)


def _accesses(instruction: Instruction) -> bool:
    return instruction.opcode.startswith(ACCESSES) and not any(word in instruction.opcode for word in NO_ACCESS)


def _accesses_and_waits(instruction: Instruction) -> bool:
    return _accesses(instruction) or instruction.opcode.startswith("mbarrier.")


def _all_accesses_and_waits(instruction: Instruction) -> bool:
    return _accesses_and_waits(instruction) or instruction.opcode.startswith(GLOBAL)


def _remote(instruction: Instruction) -> bool:
    return "shared::cluster" in instruction.opcode or "multicast" in instruction.opcode


def _registers(operands: Iterable[Operand]) -> Iterable[str]:
    """The registers that operands name, including those inside addresses."""
    for operand in operands:
        if isinstance(operand, Register):
            yield operand.name
        elif isinstance(operand, Address):
            yield from _registers((operand.base,))
        elif isinstance(operand, TensorAddress):
            yield from _registers((operand.base,))
        elif isinstance(operand, Vector):
            yield from _registers(operand.elements)
