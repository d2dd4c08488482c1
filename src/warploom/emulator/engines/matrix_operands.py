"""MMA operands in shared memory: from a descriptor to a matrix of raw bits.

Memory is read in 16-byte chunks, which no swizzle breaks. The chunk addresses of a layout are computed once for
each (constant descriptor bits, start within a swizzle pattern, shape) and kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ...errors import InvalidOperandError
from ...isa import tcgen05_descriptor
from ...isa.descriptors import ADDRESS_MASK, START_MASK, decode, unwrapped_addresses
from ...isa.dtypes import DType, b8
from ...isa.swizzle import CHUNK_BYTES as CHUNK
from ..machine.frame import Frame
from ..machine.machine import Cta
from ..machine.memory import Region

_CHUNK_TYPE = np.dtype(np.complex128)
"""Any 16-byte type that NumPy copies quickly; its values are never inspected."""
PATTERN = 1024
"""No swizzle uses address bits at or above this."""


@dataclass(frozen=True, eq=False)
class ChunkMap:
    """The positions of an operand's 16-byte chunks.

    Attributes:
        chunks: chunk numbers; (rows, chunks of a row) for K-major, (chunks of a column, k) for MN-major.
        low, high: first byte and the byte after the last.
    """

    chunks: np.ndarray
    low: int
    high: int


Addresses = Callable[[int, int, DType, int, int, str], np.ndarray]
"""Byte addresses of an operand's elements: of (constant descriptor bits, start, dtype, rows, k, major)."""


def of_sm_90(constant_bits: int, start: int, dtype: DType, rows: int, k: int, major: str) -> np.ndarray:
    return unwrapped_addresses(decode(constant_bits).at(start), dtype, rows, k, major)


def of_sm_100(constant_bits: int, start: int, dtype: DType, rows: int, k: int, major: str) -> np.ndarray:
    descriptor = tcgen05_descriptor.decode(constant_bits).at(start)
    return tcgen05_descriptor.operand_addresses(descriptor, dtype, rows, k, major)


@lru_cache(maxsize=4096)
def chunk_map(
    read: Addresses, constant_bits: int, inside: int, dtype: DType, rows: int, k: int, major: str
) -> ChunkMap:
    """The map of a layout whose operand starts `inside` bytes after a multiple of PATTERN.

    If the descriptor names another address, too (tcgen05_descriptor.ABSOLUTE), that multiple is zero.
    """
    addresses = read(constant_bits, inside, dtype, rows, k, major)
    step = CHUNK // dtype.bytes
    starts = addresses[:, ::step] if major == "K" else addresses[::step]
    return ChunkMap(np.ascontiguousarray(starts // CHUNK), int(starts.min()), int(starts.max()) + CHUNK)


@dataclass(frozen=True, eq=False)
class SharedOperand:
    """One operand of an MMA: its element type and shape, K-major or MN-major.

    Attributes:
        bits: of one element; 1 for b1.
        rows, k: extents in elements.
        dtype: unsigned type of the elements.
        addresses: how its descriptors are interpreted.
        used: the rows that the MMA multiplies.
    """

    bits: int
    rows: int
    k: int
    major: str
    dtype: DType
    addresses: Addresses = of_sm_90
    used: slice = field(default_factory=lambda: slice(None))
    _maps: dict[int, ChunkMap] = field(default_factory=dict)

    def at(self, descriptor: int) -> ChunkMap:
        """The location of the operand, always the same object. Raises InvalidOperandError for reserved bits."""
        found = self._maps.get(descriptor)
        if found is None:
            start = (descriptor & START_MASK) << 4
            inside = start if descriptor & tcgen05_descriptor.ABSOLUTE else start % PATTERN
            dtype, k = (b8, self.k // 8) if self.bits == 1 else (self.dtype, self.k)
            relative = chunk_map(self.addresses, descriptor & ~START_MASK, inside, dtype, self.rows, k, self.major)
            base = start - inside
            chunks = relative.chunks + base // CHUNK
            if base + relative.high > ADDRESS_MASK + 1:
                chunks &= ADDRESS_MASK // CHUNK
            found = self._maps[descriptor] = ChunkMap(chunks, base + relative.low, base + relative.high)
        return found

    def read(self, shared: Region, descriptor: int) -> np.ndarray:
        """The raw bits of the rows used, (rows, k) unsigned; single bits one to a byte."""
        raw = np.take(shared.as_type(_CHUNK_TYPE), self.at(descriptor).chunks)
        if self.bits == 1:
            return np.unpackbits(raw.view(np.uint8), axis=-1, bitorder="little")[self.used]
        elements = raw.view(f"u{self.bits // 8}")
        if self.major == "K":
            return elements[self.used]
        per_chunk = CHUNK * 8 // self.bits
        return elements.reshape(-1, self.k, per_chunk).transpose(0, 2, 1).reshape(self.rows, self.k)[self.used]


def chunks_of(
    frame: Frame, operand: SharedOperand, name: str, descriptor: int, ctas: Sequence[Cta], lane: int | None = None
) -> ChunkMap:
    """The location of an operand, which is in the shared memory of each CTA. Raises InvalidOperandError."""
    try:
        found = operand.at(descriptor)
    except InvalidOperandError as error:
        frame.error(
            InvalidOperandError, f"{error.what} (operand {name})", lane, expected=error.expected, got=error.got,
            hint=error.hint,
        )  # fmt: skip
    for cta in ctas:
        if found.low < cta.shared_start or found.high > cta.shared.size:
            start = frame.machine.code.name_shared((descriptor & START_MASK) << 4)
            frame.error(
                InvalidOperandError, f"the descriptor of {name} exceeds the CTA's shared memory", lane,
                expected=f"bytes {cta.shared_start} to {cta.shared.size}",
                got=f"bytes {found.low} to {found.high}: {operand.rows} x {operand.k} {operand.major}-major "
                f"from {start}, descriptor {descriptor:#018x}",
                hint="check the offsets against the layout that wrote the tile (isa.shared_layout)",
            )  # fmt: skip
    return found


@dataclass(eq=False, slots=True)
class OperandPlace:
    """The location of one operand of one MMA: `name` is "a" or "b"."""

    name: str
    region: Region
    operand: SharedOperand
    map: ChunkMap
