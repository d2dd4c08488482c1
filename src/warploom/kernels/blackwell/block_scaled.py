"""Blackwell, fourth rung: mxfp8 and nvfp4; blocks of A and B have scale factors, which the matrix unit applies.

Idea       Every 32 elements of a row (mxfp8: e4m3, a power of two) or every 16 (nvfp4: e2m1, an e4m3 factor) share a
           factor. The factors of 128 rows and four blocks of k form an atom of 512 bytes. One tcgen05.cp copies an atom
           from shared memory to all four quarters of tensor memory, ordered before later MMAs of the same thread. Each
           stage has its own columns for the factors, so that no copy overwrites what an MMA reads.
Roles      load       warp 0, one thread    A and B by TMA, the atoms by bulk copies
           multiply   warp 1, one thread    copies of the stage's atoms, 4 MMAs, commit
           epilogue   warps 4 to 7          as in the rungs before
Barriers   as in `specialised`; the bytes of a stage are those of A, B and the atoms
Buffers    mxfp8: 4 stages of A 128 x 128, B 128 x 128 and 2 atoms; nvfp4: twice the k and 8 atoms
           tensor memory: 2 x 128 columns of D, and 8 (mxfp8) or 32 (nvfp4) per stage
Layout     atom of rows r < 128 and blocks f < 4: byte 16 (r % 32) + 4 (r / 32) + f; atoms (rows / 128, k / 4 blocks)
Numbers    assembled and emulated, not run on hardware by the authors
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from ...collective.mma.tcgen05 import AccumulatorRing
from ...collective.pipeline.umma import UmmaPipeline
from ...collective.tile.raster import grouped
from ...collective.tile.scheduler import Persistent
from ...collective.tile.sizes import persistent_grid
from ...collective.tile.warp_roles import LOAD, MULTIPLY, REGISTERS, THREADS, epilogue, one_thread
from ...errors import ArgumentError
from ...isa.dtypes import DType, e4m3, u8, u64
from ...isa.instruction_descriptor import InstructionDescriptor
from ...lang import Kernel, Tile, ptx, smem, tmem
from ...lang.umma_operands import Scales
from ..fields import builder, check_fields
from .operands import blackwell_kernel, result
from .specialised import BAND, store

ATOM_BYTES, ATOM_ROWS, ATOM_BLOCKS = 512, 128, 4
ROW_BYTES = 128
"""Bytes of a row of A or B per stage."""
STEPS = 4
"""MMAs per stage: 32 bytes of each row at a time."""


@dataclass(frozen=True)
class Format:
    """A block-scaled format: MMA kind, element type, bits, type of the factors, elements that share a factor."""

    kind: str
    element: str
    bits: int
    scale: str
    block: int

    @property
    def tile_k(self) -> int:
        """Elements in 128 bytes of a row."""
        return 1024 // self.bits

    @property
    def atoms(self) -> int:
        """Atoms of 128 rows per stage."""
        return self.tile_k // (self.block * ATOM_BLOCKS)


MXFP8 = Format("mxf8f6f4", "e4m3", 8, "ue8m0", 32)
NVFP4 = Format("mxf4nvf4", "e2m1", 4, "ue4m3", 16)


@dataclass(frozen=True)
class Config:
    """Tile in elements (columns a multiple of 128), stages of the ring, accumulators."""

    format: Format = MXFP8
    tile_n: int = 128
    stages: int = 4
    buffers: int = 2
    tile_m: int = 128

    @property
    def dtype(self) -> DType:
        """Type of A and B in memory: two 4-bit elements form a byte."""
        return e4m3 if self.format.bits == 8 else u8

    @property
    def atoms_b(self) -> int:
        return self.format.atoms * (self.tile_n // ATOM_ROWS)

    def check(self) -> None:
        """Raise ArgumentError if no kernel can be built from this; the build itself checks that memory suffices."""
        check_fields(self, {"tile_m": (ATOM_ROWS,), "tile_n": (ATOM_ROWS, 2 * ATOM_ROWS)})


def check_atoms(dims: Mapping[str, int], atoms: int) -> None:
    """Raise ArgumentError unless there is exactly one atom per 128 rows and four blocks of k.

    atoms: atoms of 128 rows and the 128 bytes of a k-tile.
    """
    along = -(-dims["K"] // ROW_BYTES) * atoms
    for side, rows in (("A", "M"), ("B", "N")):
        wanted, got = (-(-dims[rows] // ATOM_ROWS), along), (dims[f"{rows}A"], dims["KA"])
        if got != wanted:
            raise ArgumentError(
                f"the scale factors of {side} do not match its {rows} = {dims[rows]} rows of {dims['K']} bytes",
                expected=f"Scale{side} of shape {(*wanted, ATOM_BYTES)}, an atom for {ATOM_ROWS} rows and four blocks",
                got=f"{(*got, ATOM_BYTES)}", code="wrong-shape",
                consequence="rows would be scaled by factors of other rows, or by bytes of other arrays",
            )  # fmt: skip


@builder()
def build(config: Config = Config()) -> Kernel:  # noqa: B008 - frozen
    """C = (A scaled) @ (B scaled)ᵀ: A (M, bytes of K), B (N, bytes of K), atoms of both, C (M, N) bf16.

    A call raises ArgumentError if the atoms do not match the matrices.
    """
    config.check()
    tile, row_bytes, stages = (config.tile_m, config.tile_n), ROW_BYTES, config.stages
    atoms = config.format.atoms

    @blackwell_kernel(
        name=f"blackwell_{config.format.kind}",
        in_specs=(
            Tile.umma_a("M", "K", config.dtype, tile_m=tile[0], tile_k=row_bytes, ragged=True),
            Tile.umma_b("N", "K", config.dtype, major="K", tile_n=tile[1], tile_k=row_bytes, ragged=True),
            Tile("MA", "KA", ATOM_BYTES, u8, multiple=(1, atoms, 1)),
            Tile("NA", "KA", ATOM_BYTES, u8, multiple=(1, atoms, 1)),
        ),
        out_specs=(result(),),
        grid=persistent_grid(tile),
        block=THREADS,
        registers=REGISTERS,
        check_dims=partial(check_atoms, atoms=atoms),
    )
    def gemm(A, B, ScaleA, ScaleB, C):
        a = smem.umma_tile(config.dtype, (tile[0], row_bytes), stages=stages, name="ring.a")
        b = smem.umma_tile(config.dtype, (tile[1], row_bytes), stages=stages, name="ring.b")
        of_a = atom_tile(stages * atoms, "ring.scale_a")
        of_b = atom_tile(stages * config.atoms_b, "ring.scale_b")
        ring = UmmaPipeline(stages=stages, a=a, b=b)
        ring.extra_bytes = ATOM_BYTES * (atoms + config.atoms_b)
        accumulators = AccumulatorRing(*tile, buffers=config.buffers)
        ring.initialise(accumulators)
        memory = tmem.alloc(512)
        accumulators.open(memory)
        factors = (
            memory.scales(ATOM_ROWS, blocks=atoms, buffers=stages, name="scale_a"),
            memory.scales(config.tile_n, blocks=atoms, buffers=stages, name="scale_b"),
        )
        work = Persistent(C, tile, grouped(BAND))
        num_k_tiles = (A.shape[1] + (row_bytes - 1)) // row_bytes
        with one_thread("load", LOAD):
            load(ring, work, (A, B), ((ScaleA, of_a), (ScaleB, of_b)), config, num_k_tiles)
        with one_thread("multiply", MULTIPLY):
            multiply(ring, accumulators, work, (of_a, of_b), factors, config, num_k_tiles)
        with epilogue():
            store(accumulators, work, C)
        memory.dealloc()

    return gemm


def atom_tile(count, name):
    """`count` atoms of 32 rows of 16 bytes."""
    return smem.umma_tile(u8, (32, 16), swizzle="NONE", stages=count, name=name)


def load(ring, work, operands, scales, config, num_k_tiles):
    """Load operands by TMA and atoms by bulk copies; the atoms of 128 rows of a stage are contiguous."""
    state, row_bytes, atoms = ring.producer_state(), ROW_BYTES, config.format.atoms
    for tile in work.tiles():
        for k_tile in ptx.range(num_k_tiles):
            with ring.produce(state) as stage:
                for matrix, target, first in zip(operands, (stage.a, stage.b), (tile.row, tile.column), strict=True):
                    ptx.tma.load(target, matrix.tma_desc(), (k_tile * row_bytes, first), stage.full)
                for (array, target), first in zip(scales, (tile.row, tile.column), strict=True):
                    parts = target.stages // (ring.stages * atoms)
                    for part in range(parts):
                        row = first // ATOM_ROWS + part
                        row = ptx.select(row < array.shape[0], row, array.shape[0] - 1)  # a tile may extend further
                        number = row.to(u64) * array.shape[1] + (k_tile * atoms).to(u64)
                        source = ptx.addr(array.pointer() + number * ATOM_BYTES)
                        place = target[state.index * (atoms * parts) + atoms * part]
                        ptx.cp.async_.bulk.load(place, source, ATOM_BYTES * atoms, stage.full)


def multiply(ring, accumulators, work, atoms, factors, config, num_k_tiles):
    """Copy the stage's atoms to tensor memory, then issue the MMAs that use them."""
    state, turn, form = ring.consumer_state(), accumulators.producer_state(), config.format
    width = ATOM_ROWS // 32
    for _tile in work.tiles():
        with accumulators.produce(turn) as into:
            for k_tile in ptx.range(num_k_tiles):
                with ring.consume(state) as stage:
                    sides = [cells[state.index] for cells in factors]
                    for target, source in zip(sides, atoms, strict=True):
                        count = source.stages // ring.stages
                        parts = count // form.atoms
                        for number in range(count):
                            part, step = divmod(number, form.atoms)
                            to = target + (step * parts + part) * width
                            ptx.tcgen05.cp(to, source[state.index * count + number])
                    for step in range(STEPS):
                        products(into, stage, sides, step, config, k_tile)


def products(into, stage, sides, step, config, k_tile):
    """Issue one MMA of a stage: 32 bytes of each row."""
    form = config.format
    several = form.atoms > 1
    atom, block = (step, 0) if several else (0, step)
    width = ATOM_ROWS // 32
    places = [side + atom * width * parts for side, parts in zip(sides, (1, config.tile_n // ATOM_ROWS), strict=True)]
    descriptor = InstructionDescriptor(
        form.kind, config.tile_m, config.tile_n, form.element, form.element, scale=form.scale, scale_a_id=block,
        scale_b_id=block,
    )  # fmt: skip
    scales = Scales(places[0], places[1], form.scale, form.block, block, block)
    accumulate = k_tile > 0 if step == 0 else True
    ptx.tcgen05.mma(
        into, stage.a.k(step), stage.b.k(step), kind=form.kind, scales=scales, idesc=descriptor.encode(),
        accumulate=accumulate,
    )  # fmt: skip
