"""Checks that the boxes of tensor copies match the bytes that the kernel expects, and suggests boxes that do.

A kernel's text states expected bytes (expect_tx), and the host chooses the boxes. If the two differ, one of them is
wrong, and a guessed launch description is more likely to be wrong than a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from ...isa.tensor_map import MAXIMUM_BOX, TensorMapSpec
from ..machine.machine import Machine
from ..machine.mbarrier import MBarrier
from .boxes import Box

SHOWN = 3
"""Boxes that are listed."""


@dataclass(frozen=True)
class ByteCountMismatch:
    """Boxes of a phase that deliver a different number of bytes than it expects.

    Attributes:
        expected, delivered: expected and delivered bytes of the phase.
        boxes: its boxes in words: "box [64, 64] of A, 8192 bytes".
        instead: boxes with which the two would be equal, in words; empty if there is none.
    """

    expected: int
    delivered: int
    boxes: tuple[str, ...]
    instead: tuple[str, ...]

    def __str__(self) -> str:
        boxes = _listed(self.boxes)
        text = f"{self.expected} bytes are expected, but the copies deliver {self.delivered}: {boxes}"
        return f"{text}; {' or '.join(self.instead)} would fit" if self.instead else text


def byte_count_mismatch(
    barrier: MBarrier, more: Sequence[Box] = (), phase: int | None = None
) -> ByteCountMismatch | None:
    """Compare the bytes that the copies of a barrier's phase, including those in flight, deliver and it expects.

    Args:
        more: boxes of copies that are just being issued.
        phase: the current phase, or one that has just completed.

    None if nothing is expected, no copy has a box, or the two are equal.
    """
    machine = barrier.cta.machine
    events = barrier.log.get(barrier.phase if phase is None else phase, [])
    expected = sum(event.amount for event in events if event.what == "expect")
    delivered = sum(event.amount for event in events if event.what == "complete")
    operations = [event.operation for event in events if event.what == "complete" and event.operation is not None]
    told = {id(one) for one in operations}  # an operation that is being reported is still in flight
    waiting = [
        one for one in machine.engine.pending()
        if one.barrier == (barrier.cta, barrier.offset) and id(one) not in told
    ]  # fmt: skip
    delivered += sum(one.bytes for one in waiting) + sum(box.spec.box_bytes for box in more)
    every = [box for one in (*operations, *waiting) for box in one.sources if isinstance(box, Box)] + [*more]
    if not expected or not every or delivered == expected:
        return None
    counts: dict[tuple[int, TensorMapSpec], int] = {}
    for box in every:
        key = box.bound.address, box.spec
        counts[key] = counts.get(key, 0) + 1
    words, instead = [], []
    for (address, spec), count in counts.items():
        name = _name(machine, address)
        times = f", {count} times" if count > 1 else ""
        words.append(f"box {list(spec.box)} of {name}, {spec.box_bytes} bytes{times}")
        rest, left = divmod(expected - delivered + count * spec.box_bytes, count)
        other = fitting(spec, rest) if rest > 0 and not left else None
        if other is not None:
            instead.append(f"a box {list(other)} of {name}")
    return ByteCountMismatch(expected, delivered, tuple(words), tuple(instead[:SHOWN]))


def fitting(spec: TensorMapSpec, size: int) -> tuple[int, ...] | None:
    """A box of that size that differs from a map's in one extent, the outermost possible; None if there is none."""
    if spec.pixels is not None:
        return None
    for axis in reversed(range(spec.rank)):
        others = prod(count for at, count in enumerate(spec.counts) if at != axis)
        elements, left = divmod(size * 8, spec.dtype.bits)
        extent = elements // others * spec.steps[axis]
        whole = not left and not elements % others
        if whole and 1 <= extent <= MAXIMUM_BOX and (axis or not elements // others * spec.dtype.bits % 128):
            return (*spec.box[:axis], extent, *spec.box[axis + 1 :])
    return None


def _name(machine: Machine, address: int) -> str:
    found = machine.memory.find(address)
    return found.region.name if found is not None else f"the map at {address:#x}"


def _listed(parts: Sequence[str]) -> str:
    more = f" and {len(parts) - SHOWN} more" if len(parts) > SHOWN else ""
    return "; ".join(parts[:SHOWN]) + more
