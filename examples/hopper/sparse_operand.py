"""A 2:4 sparse matrix in the format of `hopper.sparse`: the stored elements, and metadata with their positions.

Of every four adjacent elements in a row at most two are nonzero, and two are stored; in tf32, one of two. `prune` makes
such a matrix, `compress` packs it:

    a         a0 0 0 a3 | 0 b1 b2 0 | ...          (M, K)
    values    a0 a3     | b1 b2     | ...          (M, K / 2)
    codes     0 | 3<<2  | 1 | 2<<2  | ...          4 bits per group: position of the first, of the second (0xC, 0x9)
    metadata  (row blocks of 64, k-tiles, 128 threads, words) u32

Metadata is stored in the order in which a warpgroup reads it: k-tile by k-tile, one word (8-bit: two) for thread 0,
then thread 1. For 16 bits, k-tiles of 64 and t = 32 w + 4 g + p, thread t of a block has

    bits  0 to 15   the four groups of k 16 p to 16 p + 15 of row 16 w + g
    bits 16 to 31   the same of row 16 w + g + 8

so that threads p = 0 and 1 hold the metadata of the k-tile's first wgmma (selector 0), p = 2 and 3 that of the second
(selector 1). The same function of `isa.fragments` covers other widths. PTX ISA 9.7.15.6.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from warploom.errors import ArgumentError
from warploom.isa.dtypes import DType, bf16, e4m3, e5m2, f16, tf32
from warploom.isa.fragments import warpgroup_metadata

TYPES: tuple[DType, ...] = (bf16, f16, tf32, e4m3, e5m2)
BLOCK_ROWS = 64
PADDED_ROWS = 512
"""Rows are padded to a multiple of this, so that all rows of a cluster's tiles have valid metadata: invalid metadata is
undefined behaviour, even for rows that are not stored."""
THREADS = 128
SPARSE_STEPS = 2
"""Instructions per stage."""
SPARSE_STAGE_BYTES = 128
"""Bytes of a row of B per stage; half as many of A."""


def sparse_stage_k(dtype: DType) -> int:
    """Elements of k per stage, stored or not."""
    return SPARSE_STAGE_BYTES // dtype.bytes


def metadata_words(dtype: DType) -> int:
    """Metadata registers per thread, for each 64 rows of a stage."""
    return SPARSE_STEPS if dtype.bits == 8 else 1


@dataclass(frozen=True)
class Compressed:
    """A 2:4 sparse matrix.

    Attributes:
        values: (M, K / 2), with K padded to whole k-tiles.
        metadata: (blocks, k-tiles * 128 * words) u32; see the module's docstring.
        shape: (M, K) of the whole matrix.
        dtype: type of an element.
    """

    values: np.ndarray
    metadata: np.ndarray
    shape: tuple[int, int]
    dtype: DType

    def arguments(self, b: Any) -> tuple[np.ndarray, np.ndarray, Any]:
        """The kernel's arguments for the product with `b` (N, K). Raises ArgumentError for another K."""
        if b.shape[1] != self.shape[1]:
            raise ArgumentError(
                "the K of a sparse product's operands differs", expected=f"(N, {self.shape[1]})", got=tuple(b.shape)
            )
        return self.values, self.metadata, b


def prune(a: np.ndarray, dtype: DType) -> np.ndarray:
    """A copy that keeps only the largest elements of each group, by magnitude: two of four, in tf32 one of two.

    `a`: (M, K), K a multiple of the group. Raises ArgumentError otherwise.
    """
    size, kept = group_of(dtype)
    if a.ndim != 2 or a.shape[1] % size:
        raise ArgumentError("groups do not divide the matrix", expected=f"(M, a multiple of {size})", got=a.shape)
    groups = a.reshape(len(a), -1, size)
    smallest = np.argsort(np.abs(groups.astype(np.float32)), axis=-1, kind="stable")[..., : size - kept]
    pruned = groups.copy()
    np.put_along_axis(pruned, smallest, groups.dtype.type(0), axis=-1)
    return pruned.reshape(a.shape)


def compress(a: np.ndarray, dtype: DType) -> Compressed:
    """Pack a sparse matrix: its stored elements and its metadata.

    `a`: (M, K) of `dtype`'s NumPy type, with at most two nonzero elements in each group of four (tf32: one of two).
    Raises ArgumentError for more, or another type.
    """
    size, kept = group_of(dtype)
    if a.ndim != 2 or a.dtype != dtype.numpy:
        raise ArgumentError("this cannot be compressed", expected=f"(M, K) of {dtype}", got=f"{a.shape} of {a.dtype}")
    (m, k), tile_k = a.shape, sparse_stage_k(dtype)
    padded = np.zeros((-(-m // PADDED_ROWS) * PADDED_ROWS, -(-k // tile_k) * tile_k), a.dtype)
    padded[:m, :k] = a
    groups = padded.reshape(len(padded), -1, size)
    zero = groups == groups.dtype.type(0)
    if ((~zero).sum(-1) > kept).any():
        row, group = (int(at[0]) for at in np.nonzero((~zero).sum(-1) > kept))
        raise ArgumentError(
            f"row {row} has more than {kept} elements that are not zero in columns {group * size} to "
            f"{group * size + size - 1}",
            expected=f"at most {kept} of {size}", got=[float(one) for one in groups[row, group]],
            hint="prune(a, dtype) keeps the largest",
        )  # fmt: skip
    places = np.sort(np.argsort(zero, axis=-1, kind="stable")[..., :kept], axis=-1)
    values = np.take_along_axis(groups, places, axis=-1).reshape(len(padded), -1)
    return Compressed(np.ascontiguousarray(values[:m]), _metadata(_codes(places), dtype), (m, k), dtype)


def group_of(dtype: DType) -> tuple[int, int]:
    """Elements per group, and how many of them are stored. Raises ArgumentError for a type without sparse products."""
    if dtype not in TYPES:
        raise ArgumentError("no sparse kernel for this type", expected=", ".join(map(str, TYPES)), got=str(dtype))
    return (2, 1) if dtype is tf32 else (4, 2)


def _codes(places: np.ndarray) -> np.ndarray:
    """Four bits per group, (rows, groups): two positions of two bits; in tf32, both halves of the nonzero element."""
    if places.shape[-1] == 1:
        return np.where(places[..., 0] == 0, 0x4, 0xE).astype(np.uint32)
    return np.asarray(places[..., 0] | places[..., 1] << 2, np.uint32)


def _metadata(codes: np.ndarray, dtype: DType) -> np.ndarray:
    """The codes of (rows, groups) in the layout (blocks, k-tiles * 128 * words)."""
    words = metadata_words(dtype)
    blocks, per_step = len(codes) // BLOCK_ROWS, sparse_stage_k(dtype) // SPARSE_STEPS // group_of(dtype)[0]
    k_tiles = codes.shape[1] // (SPARSE_STEPS * per_step)
    by_step = codes.reshape(blocks, BLOCK_ROWS, k_tiles, SPARSE_STEPS, per_step)
    found = np.zeros((blocks, k_tiles, THREADS, words), np.uint32)
    for step in range(SPARSE_STEPS):
        word, selector = (step, 0) if words == SPARSE_STEPS else (0, step)
        threads, shifts = warpgroup_metadata(dtype.bits, selector)
        for row, group in np.ndindex(threads.shape):
            bits = by_step[:, row, :, step, group] << np.uint32(shifts[row, group])
            found[:, :, threads[row, group], word] |= bits
    return found.reshape(blocks, -1)
