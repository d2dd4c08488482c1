"""Facts that follow from the instruction descriptor of a tcgen05.mma alone: locations and layouts of operands and D.

PTX ISA 9.7.16.4.2, 9.7.16.10.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ...errors import InvalidOperandError
from ...isa import instruction_descriptor
from ...isa.instruction_descriptor import InstructionDescriptor
from ...isa.tensor_cells import Block, accumulator, matrix_a
from ..machine.machine import Cta
from ..machine.tensor_memory import Cells
from .matrix_operands import SharedOperand
from .umma_operands import bits_of, codes, codes_from_cells, dense, shared_operand


@dataclass(frozen=True, eq=False)
class Plan:
    """Facts that follow from the instruction descriptor alone.

    Attributes:
        ctas: number that take part; rows, columns: of A and B that each provides.
        a, b: their layout in shared memory; a_blocks: A in tensor memory.
        d: location of D; packed: True if elements of 4 bits are packed.
    """

    of: InstructionDescriptor
    ctas: int
    rows: int
    columns: int
    a: SharedOperand
    b: SharedOperand
    a_blocks: tuple[Block, ...]
    d: tuple[Block, ...]
    packed: bool

    @property
    def factor_rows(self) -> tuple[int, int]:
        """Rows of A and B whose scale factors a quarter of the lanes has: half of B's in a pair of 128 rows."""
        return self.rows, self.of.n // (2 if self.ctas == 2 and self.of.m == 128 else 1)

    @property
    def width(self) -> int:
        """Columns of tensor memory that D occupies."""
        return max(block.cells.stop for block in self.d)


@lru_cache(maxsize=512)
def plan(kind: str, bits: int, group: int, sparse: bool, stationary: bool, first: int = 0) -> Plan:
    """The plan of an instruction descriptor. Raises InvalidOperandError for anything the kind does not support.

    first: the first column of B that `.ws` multiplies.
    """
    found = instruction_descriptor.decode(kind, bits)
    if found.sparse != sparse:
        raise InvalidOperandError(
            f"the instruction descriptor {bits:#010x} {'has' if found.sparse else 'lacks'} the sparsity bit",
            expected=f"bit 2 to be {int(sparse)}, as the instruction is {'' if sparse else 'not '}.sp",
        )
    wrong = instruction_descriptor.wrong_shape(found, group, stationary)
    if wrong is not None:
        raise InvalidOperandError(
            f"the instruction descriptor {bits:#010x} has the wrong {wrong[0]}", expected=wrong[1], got=wrong[2]
        )
    for name, element, mn_major in (("A", found.a, found.mn_major_a), ("B", found.b, found.mn_major_b)):
        if mn_major and bits_of(element) < 8:
            raise InvalidOperandError("operands of 4 and 6 bits are K-major", got=f"a transposed {name} of {element}")
    rows, columns = found.m // group, found.n // group
    return Plan(
        found, group, rows, columns,
        shared_operand(found, "a", rows), shared_operand(found, "b", columns, first),
        matrix_a(found.m, group), accumulator(found.m, found.n, group, sparse, stationary), dense(found),
    )  # fmt: skip


def rows_of(ctas: list[Cta], operand: SharedOperand, bits: int, kind: str, packed: bool) -> np.ndarray:
    """An operand from the shared memory of all CTAs that take part, (rows, k) codes."""
    parts = [codes(operand.read(cta.shared, bits), kind, packed) for cta in ctas]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def from_cells(what: Plan, cells: list[Cells]) -> np.ndarray:
    return np.concatenate([codes_from_cells(one.view, what.of.a, what.packed) for one in cells])


def gather(what: Plan, cells: list[Cells]) -> np.ndarray:
    """D from tensor memory, (m, n) raw bits."""
    matrix = np.empty((what.of.m, what.of.n), np.uint16 if what.of.d == "f16" else np.uint32)
    for block, one in zip(what.d, cells, strict=True):
        matrix[block.rows, block.columns] = one.view
    return matrix


def scatter(what: Plan, cells: list[Cells], matrix: np.ndarray | None) -> None:
    """Write D to tensor memory, one element to a cell."""
    assert matrix is not None
    for block, one in zip(what.d, cells, strict=True):
        one.put(matrix[block.rows, block.columns])
