"""The protocol of a kernel, recorded by its trace: buffers, barriers with their arrivals and bytes, roles.

`kernel.protocol()` prints it. The calls record it while the kernel is traced, so it cannot drift from the code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..errors import SourceLocation


@dataclass
class Buffer:
    """An allocation in shared memory.

    Attributes:
        kind: "array", "mbarrier", "tile".
        name: the author's variable, made unique.
        offset, size, align: bytes.
        detail: type, shape and layout in words.
        count: mbarriers or stages in it.
        row_bytes, rows, swizzle: if it has rows, their layout; see
            `emulator.machine.symbols.SharedPart`.
    """

    kind: str
    name: str
    offset: int
    size: int
    align: int
    detail: str
    count: int = 1
    row_bytes: int = 0
    rows: int = 0
    swizzle: int = 0


@dataclass
class Columns:
    """Columns of tensor memory, in `buffers` buffers; `start` counts within the allocation."""

    name: str
    start: int
    columns: int
    detail: str
    buffers: int = 1


@dataclass
class Barrier:
    """The recorded uses of the mbarriers of one allocation."""

    buffer: Buffer
    arrivals: set[str] = field(default_factory=set)
    bytes: set[str] = field(default_factory=set)
    completed_by: set[str] = field(default_factory=set)
    waits: list[SourceLocation | None] = field(default_factory=list)


@dataclass
class Role:
    """A part of the CTA with its own program.

    Attributes:
        who: its threads, in words.
        warps: first and last warp; None if the author does not say.
        each: warps per role, if several roles are numbered: "consumer 0", "consumer 1".
    """

    name: str
    who: str
    registers: int | None = None
    warps: tuple[int, int] | None = None
    each: int = 0


@dataclass
class Protocol:
    """The data that `kernel.protocol()` prints.

    Attributes:
        name: name of the kernel.
        buffers, barriers, roles: in the order of the trace.
        named_barriers: `bar.sync` and `bar.arrive`: (barrier, threads) pairs.
        columns: of tensor memory. allocated: columns that the kernel allocates. held: allocated columns that nothing
            has freed so far. relinquished: name of the allocation after which the CTA promised to make no more.
        shared_bytes: bytes of shared memory, alignment gaps included.
    """

    name: str
    block: tuple[int, int, int] = (1, 1, 1)
    cluster: tuple[int, int, int] = (1, 1, 1)
    buffers: list[Buffer] = field(default_factory=list)
    barriers: dict[int, Barrier] = field(default_factory=dict)
    roles: list[Role] = field(default_factory=list)
    named_barriers: dict[tuple[str, str], int] = field(default_factory=dict)
    columns: list[Columns] = field(default_factory=list)
    allocated: int = 0
    held: int = 0
    relinquished: str = ""
    shared_bytes: int = 0

    @property
    def alignment(self) -> int:
        return max((buffer.align for buffer in self.buffers), default=1)

    def add_buffer(self, buffer: Buffer) -> Buffer:
        """Add a buffer; a second one of the same name gets a number."""
        taken = {item.name for item in self.buffers}
        if buffer.name in taken:
            number = 1
            while f"{buffer.name}[{number}]" in taken:
                number += 1
            buffer.name = f"{buffer.name}[{number}]"
        self.buffers.append(buffer)
        self.shared_bytes = max(self.shared_bytes, buffer.offset + buffer.size)
        if buffer.kind == "mbarrier":
            self.barriers[buffer.offset] = Barrier(buffer)
        return buffer

    def to_text(self) -> str:
        """Tables of roles, barriers and buffers."""
        threads = self.block[0] * self.block[1] * self.block[2]
        roles = [(role.name, role.who, str(role.registers or "")) for role in self.roles] or [
            ("all", f"{threads} threads", "")
        ]
        parts = [f"{self.name}: {threads} threads, cluster {' x '.join(map(str, self.cluster))}"]
        parts.append(_table(("role", "who", "registers"), roles))
        barriers = _merged(
            [
                (
                    (item.buffer.name, item.buffer.count),
                    (_choice(item.arrivals, "not initialised"), _choice(item.bytes, ""), _choice(item.completed_by, ""),
                     _lines(item.waits)),
                )
                for item in self.barriers.values()
            ]
        )  # fmt: skip
        if barriers:
            parts.append(_table(("mbarrier", "arrivals", "bytes", "completed by", "waited for at"), barriers))
        if self.named_barriers:
            rows = [(barrier, count, str(uses)) for (barrier, count), uses in self.named_barriers.items()]
            parts.append(_table(("bar", "threads", "uses"), rows))
        buffers = [
            (
                item.name,
                str(item.size),
                str(item.offset),
                item.detail + (f", {item.count} stages" if item.count > 1 else ""),
            )
            for item in self.buffers
            if item.kind != "mbarrier"
        ]
        if buffers:
            parts.append(_table(("buffer", "bytes", "offset", "layout"), buffers))
        if self.columns:
            cells = [
                (item.name, str(item.columns * item.buffers), str(item.start), item.detail + _buffers(item))
                for item in self.columns
            ]
            parts.append(_table(("tensor memory", "columns", "from", "layout"), cells))
        parts.append(f"shared memory  {self.shared_bytes} bytes")
        if self.allocated:
            used = sum(item.columns * item.buffers for item in self.columns)
            parts.append(f"tensor memory  {self.allocated} columns, {used} in use")
        return "\n\n".join(parts)


def _buffers(columns: Columns) -> str:
    return f", {columns.buffers} buffers of {columns.columns}" if columns.buffers > 1 else ""


def _choice(values: set[str], default: str) -> str:
    return " or ".join(sorted(values)) or default


def _lines(waits: list[SourceLocation | None]) -> str:
    places = sorted({(place.file, place.line) for place in waits if place is not None})
    return ", ".join(f"{file}:{line}" for file, line in places[:4]) + (" …" if len(places) > 4 else "")


def _merged(rows: list[tuple[tuple[str, int], tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Merge rows that differ only in the number of the barrier: bars[0..127]."""
    result: list[tuple[str, ...]] = []
    groups: list[tuple[str, int, tuple[str, ...]]] = []
    for (name, count), rest in rows:
        stem = name.partition("[")[0]
        if groups and groups[-1][0] == stem and groups[-1][2] == rest:
            groups[-1] = (stem, groups[-1][1] + count, rest)
        else:
            groups.append((stem, count, rest))
    for stem, count, rest in groups:
        result.append((stem if count == 1 else f"{stem}[0..{count - 1}]", *rest))
    return result


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    keep = [i for i, head in enumerate(heads) if i == 0 or any(row[i] for row in rows)]
    lines = [tuple(line[i] for i in keep) for line in (heads, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(keep))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
