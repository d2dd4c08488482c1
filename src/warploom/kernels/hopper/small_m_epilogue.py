"""The epilogue of a product that is computed transposed: the rows of a wgmma are columns of D.

A thread has two columns of D, 8 apart, and two of every 8 tokens (rows of D). A vector along the columns is two numbers
per thread; a vector along the tokens has one number per token of the thread. All are loaded before the main loop.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...collective.epilogue.apply import Epilogue, EpilogueBlock
from ...collective.epilogue.transposed_store import TransposedStore
from ...collective.mma.fragment import ACC_REGS, HALF_ROWS, load_as_f32, pack
from ...collective.tile.sizes import ACC_ATOM_N
from ...isa.dtypes import u64
from ...lang import ptx
from ...lang.arrays import RegisterArray
from ...lang.predicate import Predicate
from ...lang.values import Register


class SmallMEpilogue:
    """The epilogue of one consumer's part of a tile.

    Args:
        epilogue: the operations on the elements.
        token, column: coordinates in D: the tile's first row, and this consumer's first column.
        tokens: tokens of the tile.
        transposed: the store of 16 bytes at a time; None to store element by element.
        me: index of the consumer.
    """

    def __init__(
        self, epilogue: Epilogue, token: Register, column: Register, tokens: int,
        transposed: TransposedStore | None = None, me: int = 0,
    ) -> None:  # fmt: skip
        self.epilogue, self.D, self.transposed, self.me = epilogue, epilogue.D, transposed, me
        self.token = token
        self.block = EpilogueBlock(epilogue, token, column, transposed=True)
        epilogue.begin()
        self.block.load_near()
        self.loaded = self.block.load(0, tokens // ACC_ATOM_N)
        if epilogue.fusion.addend:
            self.reads_addend = epilogue.args["beta"] != 0.0

    def store(self, acc: RegisterArray, complete: range) -> None:
        """Finish and store the accumulators whose indices are in `complete`."""
        whole = complete.start % ACC_REGS == 0 and complete.stop % ACC_REGS == 0
        atoms = range(complete.start // ACC_REGS, -(-complete.stop // ACC_REGS))
        if self.transposed is not None and whole and not self.epilogue.operands:
            self._store_transposed(self.transposed, acc, atoms)
            return
        columns = self.D.shape[1]
        offset = self.block.along.to(u64) * columns + self.block.near
        for atom in atoms:
            for odd in range(2):
                exists = self.block.exists(atom, odd)
                position = offset + (atom * ACC_ATOM_N + odd) * columns.to(u64)
                for half in range(2):
                    index = ACC_REGS * atom + 2 * half + odd
                    if index in complete:
                        inside = exists & self.block.has_near[half]
                        self._store_element(acc[index], atom, half, odd, position, inside)

    def _store_transposed(self, transposed: TransposedStore, acc: RegisterArray, atoms: range) -> None:
        """Store two atoms of 8 tokens at a time."""
        transposed.begin(self.me)
        for turn, first in enumerate(atoms[::2]):
            words = [
                pack([self._finished(acc, atom, half, odd) for odd in range(2)], self.D.dtype)
                for atom in atoms[2 * turn : 2 * turn + 2]
                for half in range(2)
            ]
            transposed.store(words, self.me, turn, self.token + first * ACC_ATOM_N, self.block.warp_near)

    def _finished(
        self, acc: RegisterArray, atom: int, half: int, odd: int, operands: Sequence[Register] = ()
    ) -> Register:
        value = acc[ACC_REGS * atom + 2 * half + odd]
        return self.block.element(value, half, odd, self.loaded[atom], operands)

    def _store_element(
        self, value: Register, atom: int, half: int, odd: int, position: Register, inside: Predicate
    ) -> None:
        """Apply gate and addend to one element and store it. `position` is its offset in D, in elements. C is not read
        if beta is 0."""
        size, operands = self.D.dtype.bytes, []
        for array in self.epilogue.operands:
            wanted = inside
            if self.epilogue.fusion.addend and array is self.epilogue.args["C"]:
                wanted = inside & self.reads_addend
            operands.append(load_as_f32(array.dtype, array.pointer() + position * size, half * HALF_ROWS, wanted))
        result = self.block.element(value, half, odd, self.loaded[atom], operands)
        target = ptx.addr(self.D.pointer() + position * size, half * HALF_ROWS * size)
        ptx.store(target, result.to(self.D.dtype), pred=inside)
