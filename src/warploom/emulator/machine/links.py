"""Links between GPUs: writes of one GPU reach the others late and reordered, unless a release orders them.

Memory holds the latest write, and the GPU that wrote it reads that. For each byte in flight, the value that other
GPUs read is kept as well. PTX ISA 8.9 permits the behaviour here, and this is all it models:

    st                      in flight until a release or a fence of its GPU at .sys scope, the next launch there, or
                            until the link delivers it
    st.relaxed, .volatile   visible at once: a flag overtakes the data before it; under "random" also in flight
    released, not acquired  weak loads of another GPU still return the old value, as from a cache,
                            until that GPU acquires at .sys scope or starts a launch
    atomics, copies         visible at once

A link delivers when nothing else can run; under "random" also by the seed, line by line. Under "eager" nothing is in
flight. A 128-byte line that one instruction writes is delivered as one, as over NVLink. A GPU's release covers all
that its threads have written so far: more than the release guarantees, never less.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ...isa.effects import Order

if TYPE_CHECKING:
    from .memory import Region

LINE = 128
IMMEDIATE = "eager"
"""The schedule under which stores take effect at once."""


class InFlightRange:
    """The bytes in flight in one buffer.

    Attributes:
        old: what other GPUs read; new: what was written; by: 1 + the rank of the writer, 0 if not in flight.
        released: when it was released, 0 for not yet.
        any: True if anything may be in flight.
    """

    def __init__(self, size: int) -> None:
        self.old, self.new = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
        self.by, self.released = np.zeros(size, np.uint8), np.zeros(size, np.int64)
        self.any = False


class Links:
    """All links of a machine.

    Args:
        devices: number of GPUs; regions: the buffers that several of them can address; policy, seed: the schedule.
        progress: called when something has arrived that a thread may wait for.
    """

    def __init__(
        self, devices: int, regions: list[Region], policy: str, seed: int, progress: Callable[[], None]
    ) -> None:
        self.progress = progress
        self.at_random = policy == "random"
        self.random = random.Random(seed)
        self._stretches = {region: InFlightRange(region.size) for region in regions}
        self._acquired = [0] * devices
        self._unreleased: list[list[tuple[InFlightRange, np.ndarray]]] = [[] for _ in range(devices)]
        self._now = 0

    # -- what threads do -------------------------------------------------------------------------------------------

    def stores(self, device: int, order: Order, region: Region, index: np.ndarray, values: np.ndarray) -> None:
        """Lanes of that GPU are about to store (count, lanes) values starting at these elements."""
        stretch = self._stretches.get(region)
        if stretch is None:
            return
        at = _bytes_of(index, values.itemsize, values.shape[0])
        late = self._is_late(order, at[:, 0])
        if not late.all():
            stretch.by[at[~late]] = 0
            at, values = at[late], values[:, late]
        me = device + 1
        mine = (stretch.by[at] == me) & (stretch.released[at] == 0) & (stretch.new[at] == region.data[at])
        stretch.old[at] = np.where(mine, stretch.old[at], region.data[at])
        stretch.new[at] = np.ascontiguousarray(values.T).view(np.uint8).reshape(at.shape)
        stretch.by[at], stretch.released[at] = me, 0
        if at.size:
            stretch.any = True
            self._unreleased[me - 1].append((stretch, at))

    def _is_late(self, order: Order, first: np.ndarray) -> np.ndarray:
        """The lanes whose stores stay in flight for a while; `first`: the byte where each begins."""
        if not order.strong:
            return np.ones(first.size, np.bool_)
        if order.releases or not self.at_random:
            return np.zeros(first.size, np.bool_)
        lines, line_of = np.unique(first // LINE, return_inverse=True)
        return np.array([self.random.random() < 0.5 for _ in lines], np.bool_)[line_of.reshape(-1)]

    def loads(self, device: int, order: Order, region: Region, index: np.ndarray, taken: np.ndarray) -> np.ndarray:
        """The values that lanes of that GPU read if memory holds `taken`, (count, lanes) or (lanes,)."""
        stretch = self._stretches.get(region)
        if stretch is None or not stretch.any:
            return taken
        size = taken.itemsize
        at = _bytes_of(index, size, 1 if taken.ndim == 1 else taken.shape[0])
        by, released = stretch.by[at], stretch.released[at]
        hidden = (by != 0) & (by != device + 1)
        if not hidden.any():
            return taken
        hidden &= ~((released > 0) & (order.strong or released <= self._acquired[device]))
        raw = region.data[at]
        written_since = (by != 0) & (raw != stretch.new[at])
        if written_since.any():  # by an atomic or a copy: the whole element is visible at once
            elements = written_since.reshape(-1, size).any(axis=1)
            hidden &= ~np.repeat(elements, size).reshape(hidden.shape)
        seen = np.where(hidden, stretch.old[at], raw).view(taken.dtype)
        return np.ascontiguousarray(seen.T).reshape(taken.shape)

    def before(self, device: int, order: Order) -> None:
        """A store or an atomic of that GPU is about to take effect."""
        if order.releases and order.scope == "sys":
            self.release(device)

    def after(self, device: int, order: Order) -> None:
        """A load or an atomic of that GPU has taken effect."""
        if order.acquires and order.scope == "sys":
            self.acquire(device)

    def fence(self, device: int) -> None:
        """A fence at .sys scope on this GPU, or the start of a launch in its stream."""
        self.release(device)
        self.acquire(device)

    def release(self, device: int) -> None:
        """Any later acquire reads what this GPU has written."""
        self._now += 1
        for stretch, at in self._unreleased[device]:
            stretch.released[at[(stretch.by[at] == device + 1) & (stretch.released[at] == 0)]] = self._now
        self._unreleased[device] = []

    def acquire(self, device: int) -> None:
        """This GPU reads everything released so far."""
        self._acquired[device] = self._now

    def landed(self, region: Region, start: int, size: int) -> None:
        """Make bytes that a copy engine has written visible at once."""
        stretch = self._stretches.get(region)
        if stretch is not None:
            stretch.by[start : start + size] = 0

    # -- what links do ---------------------------------------------------------------------------------------------

    def deliver(self) -> bool:
        """Nothing else can run: everything in flight arrives. True if there was anything."""
        waiting = [stretch for stretch in self._stretches.values() if stretch.any]
        for stretch in waiting:
            stretch.by[...] = 0
            stretch.any = False
        self._unreleased = [[] for _ in self._unreleased]
        if waiting:
            self.progress()
        return bool(waiting)

    def step(self) -> None:
        """Under "random": occasionally deliver one line."""
        if not self.at_random or self.random.random() < 0.5:
            return
        stretch = self.random.choice([*self._stretches.values()]) if self._stretches else None
        if stretch is not None and stretch.any:
            lines = np.unique(np.flatnonzero(stretch.by) // LINE)
            if lines.size:
                first = int(lines[self.random.randrange(lines.size)]) * LINE
                stretch.by[first : first + LINE] = 0
                self.progress()
            stretch.any = lines.size > 1


def _bytes_of(index: np.ndarray, size: int, count: int) -> np.ndarray:
    """The bytes of `count` elements of `size` bytes starting at each index, (lanes, bytes)."""
    first = index.astype(np.int64) * size
    return first[:, None] + np.arange(size * count)
