"""mma.sync and mma.sp with a kind: 8, 6 and 4 bits, block-scaled or not. PTX ISA 9.7.14.5.14, 9.7.14.6.

Fragments are those of the dense and sparse 8-bit products; for kinds that pack two elements to a byte, those of the
4-bit products. The scale factor of a row of A comes from one of two of the four threads that hold the row; rows 8
apart use adjacent threads. The factor of a column of B comes from the thread that thread-id names. Not recorded on
hardware: the accumulation is tcgen05's.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ...errors import InvalidOperandError
from ...isa import dtypes
from ...isa.fragments import mma_a, mma_b, mma_c, mma_metadata
from ...isa.instructions.mma import shape_of
from ...isa.instructions.mma_kinds import BYTES_ASKED, FORMS
from ..engines import sparse_rows
from ..machine.frame import Frame
from ..machine.registers import WARP
from ..numerics.block_scaled import Scaling, multiply_scaled
from ..numerics.tensor_core import NO_NUMERICS, Product, multiply_accumulate
from ..numerics.tensor_registers import gather, scatter
from ..program.decode import Decode
from ..program.handlers import Handlers, Step
from .mma import BITS

HANDLERS = Handlers()
_THREADS = {"a": range(2), "b": range(4)}
Factors = Callable[[Frame], "list[np.ndarray]"]


@HANDLERS.add(*(form.key for form in FORMS))
def mma_of_kind(d: Decode) -> Step:
    m, n, k = shape_of(d.modifiers)
    key = d.match.form.key.removeprefix("mma.")
    sparse, packed = key.startswith("sp_"), "mxf4" in key
    accumulator = "f16" if key.endswith("_f16") else "f32"
    kind = Product(d.modifier("atype", "e2m1"), d.modifier("btype", "e2m1"), accumulator, "tcgen05")
    bits, stored = 4 if packed else 8, k // 2 if sparse else k
    parts = {"a": mma_a(m, stored, bits), "b": mma_b(k, bits), "c": mma_c(m, BITS[accumulator])}
    registers = {name: d.registers(name, dtypes.b32) for name in ("a", "b", "c", "d")}
    metadata = d.registers("meta", dtypes.b32) if sparse else None
    threads, shifts = mma_metadata(k, bits, 0)
    scaled = _factors(d, "a", m), _factors(d, "b", n)
    flops = 2 * m * n * k

    def product(warp: int, given: dict[str, np.ndarray], where: np.ndarray | None, of: list[np.ndarray],
                mode: str) -> np.ndarray:  # fmt: skip
        left, right = (_codes(given[name][warp], type_, packed) for name, type_ in (("a", kind.a), ("b", kind.b)))
        third = given["c"][warp]

        def multiply(one: np.ndarray, other: np.ndarray) -> np.ndarray:
            if not of:
                return multiply_accumulate(one, other, third, kind, mode)
            scaling = Scaling("ue4m3" if of[0].shape[1] == 4 else "ue8m0", k // of[0].shape[1])
            return multiply_scaled(one, other, third, kind, scaling, of[0], of[1], mode)

        if where is None:
            return multiply(left, right)
        types = (kind.a, kind.b, kind.accumulator)
        return sparse_rows.multiplied(sparse_rows.dense(left, where, k), right, third, where, types, multiply)

    def step(frame: Frame) -> None:
        frame.machine.counters.count_products("mma", frame.warps, flops)
        found: list[np.ndarray | None] = [None] * frame.warps
        if metadata is not None:
            words, stored_in = metadata.read(frame).reshape(-1, WARP), gather(registers["a"].read(frame), parts["a"])
            for warp, word in enumerate(words):
                found[warp] = _places(
                    frame, word[threads] >> shifts & 15, k, _codes(stored_in[warp], kind.a, packed), kind.a
                )
        factors = [side(frame) for side in scaled if side is not None]
        if frame.machine.numerics == NO_NUMERICS:
            return
        given = {name: gather(registers[name].read(frame), part) for name, part in parts.items()}
        results = [
            product(warp, given, found[warp], [side[warp] for side in factors], frame.machine.numerics)
            for warp in range(frame.warps)
        ]
        registers["d"].write(frame, scatter(np.stack(results), parts["c"]))

    return step


def _codes(raw: np.ndarray, kind: str, packed: bool) -> np.ndarray:
    """Elements of the bytes that hold them: 4-bit ones in the middle, 6-bit ones in the low bits (PTX ISA 9.7.14.5)."""
    if packed or BITS.get(kind) == 8:
        return raw
    return raw >> np.uint8(2) & np.uint8(15) if kind == "e2m1" else raw & np.uint8(63)


def _places(frame: Frame, nibbles: np.ndarray, k: int, stored: np.ndarray, kind: str) -> np.ndarray:
    """The positions along k of the stored elements of a warp's A, (16, k / 2)."""
    nothing = sparse_rows.of_zeros(stored, kind, nibbles.shape)
    try:
        found = sparse_rows.meaningful(nibbles.astype(np.uint8), False, sparse_rows.ASCENDING, nothing)
    except InvalidOperandError as error:
        frame.error(InvalidOperandError, error.what, expected=error.expected, consequence=error.consequence)
    return sparse_rows.places_along(found, k, False)


def _factors(d: Decode, side: str, rows: int) -> Factors | None:
    """The reader of the factors of A's rows or of B's columns: (rows, factors) codes for each warp; None for none."""
    if f"s{side}" not in d.operands:
        return None
    key = d.match.form.key
    count = int(key.removesuffix("x").rpartition("_")[2])
    values, ids = d.registers(f"s{side}", dtypes.b32), d.registers(f"ids_{side}", dtypes.b16)
    row, each = np.arange(rows), np.arange(count)
    (bytes_asked, expected), threads = BYTES_ASKED[count], _THREADS[side]

    def read(frame: Frame) -> list[np.ndarray]:
        words = values.read(frame).reshape(-1, WARP)
        asked = np.broadcast_to(ids.read(frame), (2, frame.lanes)).reshape(2, -1, WARP)
        found = []
        for warp, word in enumerate(words):
            byte, thread = (int(asked[which, warp, 0]) for which in (0, 1))
            if byte not in bytes_asked or thread not in threads or (asked[:, warp] != asked[:, warp, :1]).any():
                frame.error(
                    InvalidOperandError, f"byte-id and thread-id of the factors of {side.upper()}",
                    expected=f"{expected}, and {threads.start} to {threads.stop - 1}, the same in all lanes",
                    got=f"{byte}, {thread}",
                )  # fmt: skip
            lane = 4 * (row % 8) + (2 * thread + row // 8 if side == "a" else thread)
            found.append((word[lane][:, None] >> (8 * (byte + each)) & 255).astype(np.uint8))
        return found

    return read
