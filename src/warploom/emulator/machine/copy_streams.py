"""Copies by the copy engines, in side streams of the stream that launches the kernel.

    launch 0 begins -------- kernel -------- all done: launch 1 begins
      stream 0    copy, flag, copy, flag
      stream 1    copy, flag

A stream starts with its GPU's launch and does its copies in order. The GPU's next launch begins when the kernel and all
streams have finished, as with events before and after (CUDA C++ Programming Guide, streams). Streams are not ordered
with each other or with the kernel. A copy of one word is a flag: an acquire of it makes the stream's earlier copies
visible. The bytes of one copy may become visible in any order.

    eager    copies are done as early as possible
    lazy     copies are done only when nothing else can run
    random   copies are done at random times, their rows in random order, both from the seed
    starve   one stream is held back as long as anything else can run; pct: half of the streams
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...asm.forms import FormBinder
from ...asm.nodes import Address, Instruction, Register
from ...errors import ArgumentError
from .frame import frame_of
from .machine import Cluster, Cta, Device, Machine
from .memory import Region
from .operation import PLAIN, Operation
from .places import Lanes

WORD = 4
ROWS = 16
"""Accesses reported at a time: fewer than a warp has lanes, because one thread makes them."""
_TYPES = {"%address": "u64", "%word": "b32"}


@dataclass(frozen=True)
class Block:
    """Rows of bytes in a buffer, with `pitch` bytes from row to row."""

    region: Region
    start: int
    rows: int
    row_bytes: int
    pitch: int

    def row(self, number: int) -> np.ndarray:
        """The bytes of a row."""
        first = self.start + number * self.pitch
        return self.region.data[first : first + self.row_bytes]


@dataclass(frozen=True)
class Copy:
    """A copy between blocks of equal size. flag: it is one word that publishes the stream's earlier copies."""

    source: Block
    target: Block
    flag: bool = False


class CopyOperation(Operation):
    """A copy as observers see it: a memory access without an instruction."""

    @property
    def text(self) -> str:
        return self.words

    words = "a copy"


class StreamCta(Cta):
    """Represents a stream in reports of who made an access."""

    def describe_warp(self, warp: int) -> str:
        return self.describe()

    def describe(self) -> str:
        assert isinstance(self.cluster, Stream)
        return f"copy stream {self.cluster.number} of GPU {self.device.index}"


class Stream(Cluster):
    """A stream during one launch of its GPU; its accesses are attributed to threads of a CTA of its own."""

    cta_type = StreamCta

    def __init__(self, machine: Machine, device: Device, call: int, number: int) -> None:
        self.number = number
        super().__init__(machine, device)
        self.call = call


@dataclass(eq=False)
class Running:
    """A stream of a GPU: its copies, the launches it has served, and this launch's remaining copies, last first."""

    device: Device
    number: int
    copies: Sequence[Copy]
    served: int = 0
    stream: Stream | None = None
    left: list[tuple[Copy, int, int]] = field(default_factory=list)
    """Copies, each with its first row and the row after its last."""


class CopyStreams:
    """All streams of a machine. `by_rank`: for each GPU its streams, each a list of copies."""

    def __init__(self, machine: Machine, by_rank: Sequence[Sequence[Sequence[Copy]]], policy: str, seed: int) -> None:
        self.machine, self.policy, self.seed = machine, policy, seed
        self.random = random.Random(seed)
        self.streams = [
            Running(machine.devices[rank], number, copies)
            for rank, streams in enumerate(by_rank)
            for number, copies in enumerate(streams)
        ]
        first = len(machine.code.operations)
        self.reads = _operation(machine, first, "ld.global.b32", "%word", "%address")
        self.writes = _operation(machine, first + 1, "st.global.b32", "%address", "%word")
        self.flags = _operation(machine, first + 2, "st.release.sys.global.b32", "%address", "%word")
        self.operations = (self.reads, self.writes, self.flags)
        """Their indices follow those of the kernel's instructions."""

    def over(self, device: Device) -> bool:
        """True if the streams of a GPU have finished the copies of all launches that began there."""
        begun = device.started // self._in_grid
        return all(each.served >= begun for each in self.streams if each.device is device)

    def advance(self, idle: bool) -> bool:
        """Do copies according to the schedule; True if any was done. `idle`: nothing else can run."""
        ready = [each for each in self.streams if self._may_go_on(each)]
        eager = [each for each in ready if not self._held(each)]
        if self.policy == "random" and (idle or self.random.random() < 0.5):
            chosen = [self.random.choice(ready)] if ready else []
        elif self.policy in ("eager", "starve", "pct") and eager:
            chosen = eager
        else:
            chosen = ready[:1] if idle else []
        for each in chosen:
            self._step(each)
        return bool(chosen)

    # -- when --------------------------------------------------------------------------------------------------------

    @property
    def _in_grid(self) -> int:
        x, y, z = self.machine.clusters_in_grid
        return x * y * z

    def _may_go_on(self, each: Running) -> bool:
        """True if the next launch to serve has begun and all streams of its GPU have finished the previous one."""
        device, call = each.device, each.served
        if each.stream is not None:
            return True
        if call >= self.machine.calls or device.retired < call * self._in_grid:
            return False
        return all(other.served >= call for other in self.streams if other.device is device)

    def _held(self, each: Running) -> bool:
        at = self.streams.index(each)
        if self.policy == "starve":
            return at == self.seed % len(self.streams)
        return self.policy == "pct" and bool(random.Random(self.seed << 16 | at).getrandbits(1))

    # -- what --------------------------------------------------------------------------------------------------------

    def _step(self, each: Running) -> None:
        if each.stream is None:
            each.stream = Stream(self.machine, each.device, each.served, each.number)
            each.left = [part for copy in reversed(each.copies) for part in self._parts(copy)]
        if each.left:
            self._copy(each.stream, *each.left.pop())
        if not each.left:
            each.stream, each.served = None, each.served + 1
        self.machine.progress()

    def _parts(self, copy: Copy) -> list[tuple[Copy, int, int]]:
        """The parts of a copy, in the order in which they are done."""
        rows = copy.source.rows
        count = self.random.choice((1, 2, 4)) if self.policy == "random" else 1
        edges = sorted({at * rows // count for at in range(count + 1)})
        parts = [(copy, first, end) for first, end in zip(edges, edges[1:], strict=False)]
        if count > 1:
            self.random.shuffle(parts)
        return parts

    def _copy(self, stream: Stream, copy: Copy, first: int, end: int) -> None:
        for at in range(first, end, ROWS):
            rows = range(at, min(at + ROWS, end))
            self._told(stream, self.reads, "reads", copy.source, rows)
            self._told(stream, self.flags if copy.flag else self.writes, "writes", copy.target, rows, copy.source)
            for row in rows:
                copy.target.row(row)[...] = copy.source.row(row)
                if self.machine.links is not None:
                    start = copy.target.start + row * copy.target.pitch
                    self.machine.links.landed(copy.target.region, start, copy.target.row_bytes)

    def _told(
        self, stream: Stream, operation: CopyOperation, how: str, block: Block, rows: range, source: Block | None = None
    ) -> None:
        """Report an access to observers, as made by the one thread that represents the stream."""
        listeners = self.machine.events.copied
        if not listeners:
            return
        frame = frame_of(stream.ctas[0], 0, 1)
        frame.operation, frame.mask = operation, True
        index = np.array([(block.start + row * block.pitch) // WORD for row in rows], np.int64)
        count = block.row_bytes // WORD
        values = None
        if operation is self.flags and source is not None:
            values = np.full((1, frame.lanes), source.row(rows[0]).view(np.uint32)[0])
        place = Lanes(block.region, "global", index, WORD, count, np.zeros(len(rows), np.int64))
        for listener in listeners:
            listener(frame, how, place, values)


def checked(copy: Copy) -> Copy:
    """The copy, if it can be emulated. Raises ArgumentError."""
    source, target = copy.source, copy.target
    numbers = [number for block in (source, target) for number in (block.start, block.row_bytes, block.pitch)]
    if (source.rows, source.row_bytes) != (target.rows, target.row_bytes) or any(number % WORD for number in numbers):
        raise ArgumentError(
            "this copy cannot be emulated", expected="two blocks of one size, in whole words of 32 bits",
            got=f"{source.rows} rows of {source.row_bytes} bytes, and {target.rows} of {target.row_bytes}",
        )  # fmt: skip
    if copy.flag and (source.rows, source.row_bytes) != (1, WORD):
        raise ArgumentError("a flag is one word of 32 bits", got=f"{source.rows} rows of {source.row_bytes} bytes")
    return copy


def _operation(machine: Machine, pc: int, opcode: str, *names: str) -> CopyOperation:
    """A copy's access, in the form of an instruction."""
    operands = tuple(Address(Register(name)) if name == "%address" else Register(name) for name in names)
    instruction = Instruction(opcode, operands)
    scope = machine.code.operations[-1].scope
    made = CopyOperation(pc, instruction, PLAIN, scope, bound=FormBinder().bind(instruction, _TYPES))
    made.words = "a flag after copies" if "release" in opcode else "a copy"
    return made
