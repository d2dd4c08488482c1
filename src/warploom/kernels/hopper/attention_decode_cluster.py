"""Decode attention of few keys: the CTAs of a cluster share a key head, and combine their parts in shared memory.

    tiles of a head    0  1  2  3  4  5 ...      CTA r of C has tiles r, r + C, ...; at least one, which may be empty
    columns of O       | CTA 0 | CTA 1 | ...     each CTA combines some columns of all rows

    all       [Q, first tile, length at once][multiply][send parts][wait for bytes][combine own columns, store]

No CTA needs the lengths to find its first tile, so nothing is read before it, and a head's parts do not pass through
global memory. Parts arrive by st.async, and a barrier counts their bytes; they are combined in the order of the CTAs.

Barriers   received   1 arrival + bytes of all parts of the CTA's columns     all consumers -> consumers
           cluster    all CTAs have initialised `received`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...isa.dtypes import f32, s32, u32
from ...lang import ptx, reg, smem
from ...lang.arrays import RegisterArray
from ...lang.values import Register
from .attention_decode_combine import VECTOR, OutputVector, SplitCombine
from .attention_decode_warp import DecodeWarp
from .attention_decode_work import KeyRange, Segment, WorkPartition

_VECTOR_BYTES = VECTOR * f32.bytes


@dataclass(frozen=True)
class ClusterGrid:
    """The grid rule: a cluster for each key head and chunk of rows of each sequence."""

    cluster: int
    rows: int

    def __call__(self, dims: Mapping[str, int], machine: Any) -> tuple[int, int, int]:
        """CTAs along x, y, z."""
        heads = dims["G"]
        chunks = -(-dims["R"] * (dims["H"] // max(1, heads)) // self.rows)
        return (self.cluster * dims["B"] * heads * chunks, 1, 1)


class EarlySegment(Segment):
    """A segment whose keys are not checked, and whose number of tiles is not known yet."""


class ClusterPartition(WorkPartition):
    """The tiles of a launch: each cluster has a key head and chunk of rows of a sequence."""

    def allocate(self) -> None:
        """Nothing: a cluster finds its sequence by its number."""

    def initialise(self) -> None:
        """Nothing."""

    def begin(self) -> None:
        """Nothing."""

    def segments(self, most: int | None = None) -> Iterator[Segment]:
        """This CTA's only segment, not `measured` unless its first tile depends on the length."""
        cluster, size = self.config.cluster, self.config.tile_n
        number, rank = ptx.special.ctaid.x() // cluster, ptx.special.ctaid.x() % cluster
        sequence, which = number // self.per_sequence, number % self.per_sequence
        told, zero = self.told(sequence), reg.scalar(s32, init=0)
        segment = EarlySegment(
            sequence, which // self.chunks, which % self.chunks * self.config.tile_m, KeyRange(told, told, zero),
            (rank * size).view(s32), rank, number, (rank, rank), cluster * size,
        )  # fmt: skip
        yield segment if self.left is None else self.measured(segment)

    def measured(self, segment: Segment) -> Segment:
        if not isinstance(segment, EarlySegment):
            return segment
        cluster, size = self.config.cluster, self.config.tile_n
        keys = self.keys(segment.sequence, segment.keys.length)
        rank = ptx.special.ctaid.x() % cluster
        first = keys.first.view(u32) // size
        tiles = ptx.math.max((keys.length.view(u32) + (size - 1)) // size - first, rank + 1)
        start = segment.start if self.left is None else ((first + rank) * size).view(s32)
        tiles = (tiles - rank + (cluster - 1)) // cluster
        return Segment(**{**vars(segment), "keys": keys, "start": start, "tiles": tiles})


class ClusterCombine(SplitCombine):
    """Combine the parts of a cluster's CTAs; see the module's docstring. Workspace and counters are not used."""

    def initialise(self) -> None:
        """Allocate and initialise the barrier; the CTA must fence and arrive at the cluster barrier then."""
        cluster, columns = self.config.cluster, self.of.value_dim
        self.across = columns // VECTOR // cluster
        self.parts = smem.array(f32, (cluster, self.config.tile_m, columns // cluster), name="parts")
        self.part_logarithms = smem.array(f32, (cluster, self.config.tile_m), name="part_logarithms")
        self.received = smem.mbarrier(1, name="received")
        with ptx.if_(ptx.special.tid.x() == 0):
            ptx.mbarrier.init(self.received[0], 1)
            ptx.fence.mbarrier_init()
        ptx.cluster.arrive()

    def run(self, warp: DecodeWarp, segment: Segment, logarithms: Sequence[Register]) -> None:
        """Send the parts of this CTA's tiles, then combine and store this CTA's columns."""
        vectors, values = self._warps(warp, segment, logarithms)
        cluster, thread = self.config.cluster, ptx.special.tid.x()
        rank, rows = ptx.special.ctaid.x() % cluster, ptx.math.min(self.work.rows - segment.row, self.config.tile_m)
        size = rows * (cluster * (self.across * _VECTOR_BYTES + f32.bytes))
        ptx.mbarrier.arrive_expect_tx(self.received[0], size, pred=thread == 0)
        ptx.cluster.wait()
        for vector, part in zip(vectors, values, strict=True):
            with ptx.if_(vector.exists):
                self._send(rank, vector, part)
        ptx.mbarrier.wait(self.received[0], 0, scope="cluster")
        for begin in range(0, self.config.tile_m * self.across, self.threads):
            number = thread + begin
            row, column = number // self.across, number % self.across * VECTOR
            with ptx.if_(row < rows):
                self._add(segment, row, column, rank)

    def _send(self, rank: Register, vector: OutputVector, part: RegisterArray) -> None:
        """Send four columns of a row to the CTA that combines them, and with its first ones the row's logarithm."""
        group = vector.column // VECTOR
        owner, inside = group // self.across, group % self.across * VECTOR
        logarithm, _ = self._logarithm(vector.row)
        barrier = ptx.cluster.map_shared(self.received[0], owner)
        opcode = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes"
        place = ptx.cluster.map_shared(self.parts[rank, vector.row, inside].register(), owner)
        ptx.inst(f"{opcode}.v4.f32", place, part, barrier)
        with ptx.if_(inside == 0):
            place = ptx.cluster.map_shared(self.part_logarithms[rank, vector.row].register(), owner)
            ptx.inst(f"{opcode}.f32", place, logarithm, barrier)

    def _add(self, segment: Segment, row: Register, column: Register, rank: Register) -> None:
        """Combine the parts of four columns, and store the result."""
        found = []
        for part in range(self.config.cluster):
            values = ptx.load(f32, self.parts[part, row, column], vector=VECTOR)
            found.append((ptx.load(f32, self.part_logarithms[part, row]), values))
        columns = self.across * VECTOR
        vector = OutputVector(row, column + rank * columns, reg.predicate(True))
        self._store(segment, vector, *self._combined(found))
