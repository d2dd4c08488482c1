"""Copies by the copy engines, in streams beside the one that launches the kernel.

    launch 0 begins -------- kernel -------- all over: launch 1 begins
      stream 0    copy, flag, copy, flag
      stream 1    copy, flag

A stream begins with its GPU's launch, does its copies one after the other, and the next launch there begins when the
kernel and all the streams are over: as with events before and behind (CUDA C++ Programming Guide, streams). Two streams
know nothing of each other, and none of them knows what the kernel does. A copy of one word is a flag: who acquires it
knows what its stream copied before. Of the bytes of one copy any may come first.

    eager    copies are done as soon as they may be
    lazy     only when nothing else can go on
    random   now and then, by the seed, the rows of a copy in random order
    starve   one stream of all is held back as long as anything else can go on; pct: half of them
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
"""Told of at a time: fewer than a warp has lanes, as they are one thread's."""
_TYPES = {"%address": "u64", "%word": "b32"}


@dataclass(frozen=True)
class Block:
    """Rows of bytes in a buffer, `pitch` bytes from one to the next."""

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
    """From one block to another of the same size. flag: of one word, by which others know of the copies before it."""

    source: Block
    target: Block
    flag: bool = False


class CopyOperation(Operation):
    """What a copy is to those who watch: an access of memory, without an instruction."""

    @property
    def text(self) -> str:
        return self.words

    words = "a copy"


class StreamCta(Cta):
    """Stands for a stream where an access is asked who made it."""

    def describe_warp(self, warp: int) -> str:
        return self.describe()

    def describe(self) -> str:
        assert isinstance(self.cluster, Stream)
        return f"copy stream {self.cluster.number} of GPU {self.device.index}"


class Stream(Cluster):
    """A stream during one launch of its GPU; threads of a CTA of its own are taken to have made its accesses."""

    cta_type = StreamCta

    def __init__(self, machine: Machine, device: Device, call: int, number: int) -> None:
        self.number = number
        super().__init__(machine, device)
        self.call = call


@dataclass(eq=False)
class Running:
    """A stream of a GPU: its copies, how many launches it has served, and what is left of this one, last first."""

    device: Device
    number: int
    copies: Sequence[Copy]
    served: int = 0
    stream: Stream | None = None
    left: list[tuple[Copy, int, int]] = field(default_factory=list)
    """Copies, each with the first of its rows and the one behind the last."""


class CopyStreams:
    """All streams of a machine. `by_rank`: of each GPU, its streams, each a list of copies."""

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
        """Their places come behind those of the kernel's instructions."""

    def over(self, device: Device) -> bool:
        """Whether the streams of a GPU have done all that belongs to the launches that began there."""
        begun = device.started // self._in_grid
        return all(each.served >= begun for each in self.streams if each.device is device)

    def advance(self, idle: bool) -> bool:
        """Let copies be done, as the schedule has it; `idle`: nothing else can go on. Whether any was."""
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
        """Whether the launch that it serves next has begun: the one before it is over, in all streams of its GPU."""
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
        """The rows of a copy, in the parts in which they are done."""
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
        """Tell those who watch of an access: by one thread, which stands for the stream."""
        heard = self.machine.events.copied
        if not heard:
            return
        frame = frame_of(stream.ctas[0], 0, 1)
        frame.operation, frame.mask = operation, True
        index = np.array([(block.start + row * block.pitch) // WORD for row in rows], np.int64)
        count = block.row_bytes // WORD
        values = None
        if operation is self.flags and source is not None:
            values = np.full((1, frame.lanes), source.row(rows[0]).view(np.uint32)[0])
        place = Lanes(block.region, "global", index, WORD, count, np.zeros(len(rows), np.int64))
        for hear in heard:
            hear(frame, how, place, values)


def checked(copy: Copy) -> Copy:
    """A copy, if it can be made. Raises ArgumentError."""
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
    """The access that a copy makes, as if an instruction made it."""
    operands = tuple(Address(Register(name)) if name == "%address" else Register(name) for name in names)
    instruction = Instruction(opcode, operands)
    scope = machine.code.operations[-1].scope
    made = CopyOperation(pc, instruction, PLAIN, scope, bound=FormBinder().bind(instruction, _TYPES))
    made.words = "a flag behind copies" if "release" in opcode else "a copy"
    return made
