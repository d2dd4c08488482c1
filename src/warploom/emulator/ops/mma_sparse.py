"""mma.sp: a warp's multiply-accumulate with a 2:4 sparse A, registers in, registers out. PTX ISA 9.7.14.6.

A's stored half has the fragment of a dense A of half the k, B that of the dense B. Metadata gives the positions; then
it is the dense product, except that nothing is multiplied where nothing is stored.
"""

from __future__ import annotations

import numpy as np

from ...errors import InvalidOperandError
from ...isa import dtypes
from ...isa.fragments import mma_a, mma_b, mma_c, mma_metadata
from ...isa.instructions.mma import shape_of
from ...isa.instructions.mma_sparse import FORMS, ORDERED
from ..engines import sparse_rows
from ..machine.frame import Frame
from ..machine.registers import WARP
from ..numerics.tensor_core import NO_NUMERICS, Product, multiply_accumulate
from ..numerics.tensor_registers import gather, scatter
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .mma import BITS

HANDLERS = Handlers()


@HANDLERS.add(*(form.key for form in FORMS))
def mma_sparse(d: Decode) -> Step:
    m, n, k = shape_of(d.modifiers)
    name = d.match.form.key.removeprefix("mma.sp_").rpartition("_")[0]
    fixed = "f16" if name.startswith("f16") else name
    a_type, b_type = d.modifier("atype", fixed), d.modifier("btype", fixed)
    accumulator = "s32" if name.startswith("int") else "f16" if name.endswith("_f16") else "f32"
    kind, bits = Product(a_type, b_type, accumulator, "mma.sp", bool(d.modifier("satfinite"))), BITS[a_type]
    a, b, c = mma_a(m, k // 2, bits), mma_b(k, bits), mma_c(m, BITS[accumulator])
    threads, shifts = mma_metadata(k, bits, d.constant("sel"))
    orders = sparse_rows.ASCENDING if d.modifier("variant") == ORDERED else sparse_rows.ANY_ORDER
    registers = {operand: d.registers(operand, dtypes.b32) for operand in ("a", "b", "c", "d", "meta")}
    flops, one_of_two = 2 * m * n * k, a_type == "tf32"

    def places(frame: Frame, words: np.ndarray, stored: np.ndarray) -> np.ndarray:
        """The positions along k of the stored elements of a warp's A, (16, k / 2)."""
        nibbles = (words[threads] >> shifts & 15).astype(np.uint8)
        nothing = sparse_rows.of_zeros(stored, a_type, nibbles.shape)
        try:
            found = sparse_rows.meaningful(nibbles, one_of_two, orders, nothing)
        except InvalidOperandError as error:
            frame.error(InvalidOperandError, error.what, expected=error.expected, consequence=error.consequence)
        return sparse_rows.places_along(found, k, one_of_two)

    def product(left: np.ndarray, right: np.ndarray, third: np.ndarray, where: np.ndarray, mode: str) -> np.ndarray:
        whole = sparse_rows.dense(left, where, k)

        def multiply(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            return np.asarray(multiply_accumulate(one[None], other[None], third[None], kind, mode)[0])

        if accumulator == "s32":
            return multiply(whole, right)
        return sparse_rows.multiplied(whole, right, third, where, (a_type, b_type, accumulator), multiply)

    def step(frame: Frame) -> None:
        frame.machine.counters.count_products("mma", frame.warps, flops)
        metadata = registers["meta"].read(frame).reshape(-1, WARP)
        left = gather(registers["a"].read(frame), a)
        found = [places(frame, words, stored) for words, stored in zip(metadata, left, strict=True)]
        if frame.machine.numerics == NO_NUMERICS:
            return
        right, third = (gather(registers[x].read(frame), part) for x, part in (("b", b), ("c", c)))
        parts = zip(left, right, third, found, strict=True)
        result = np.stack([product(*part, mode=frame.machine.numerics) for part in parts])
        registers["d"].write(frame, scatter(result, c))

    return step
