"""Words in global memory that are read and stored under a lock that orders nothing.

Strong accesses (.volatile, .relaxed) do not race (PTX ISA 8.7.1), so a lock without fences shows no race if everything
that it guards is strong. Yet nothing orders its load after the store of the previous lock owner (8.9.4): the load may
return the value from before that store, and the new store then loses the update. It is reported if a warp

    has seen, in another word, what a thread wrote there after its store of this word (the lock is free),
    loads this word once (a loop that waits for its value may read an older one),
    and stores it, without an atomic, while nothing orders the two stores.

Without a lock it is reported if two warps each store a value computed from a load of the word just before
(`modified_words`), and the later one has not read the word in any other way, as a warp that waits for its turn does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...isa import effects
from ..happens_before.clocks import WarpClock
from ..happens_before.flags import FLAGS, knows
from ..happens_before.state import ClusterState
from ..modified_words import modified_words
from ..report.findings import at
from ..report.words import actor as who
from ..waiting_loads import waits

if TYPE_CHECKING:
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.memory import Region
    from ...emulator.machine.operation import Operation
    from ..context import Context


@dataclass(frozen=True)
class Stored:
    """A strong store: its warp in the grid, that warp's epoch, the time, and whether it depends on the old value."""

    actor: int = 0
    epoch: int = 0
    when: int = 0
    modifies: bool = False


NEVER = Stored()


@dataclass(eq=False)
class Loaded:
    """A warp's loads of the value of one store: their number, the instruction, and whether it knew of the store."""

    store: Stored
    code: Operation
    told: bool
    times: int = 1


@dataclass(eq=False)
class Word:
    """`last`: the last strong store or atomic; `writers`: when each warp last wrote it; `loads`: by warp; `looked`:
    how often each warp has loaded or updated it."""

    last: Stored = NEVER
    writers: dict[int, int] = field(default_factory=dict)
    loads: dict[int, Loaded] = field(default_factory=dict)
    looked: dict[int, int] = field(default_factory=dict)


class LostUpdates(Observer):
    """See the module's docstring."""

    rules = ("lost-update",)

    def __init__(self, context: Context) -> None:
        self.context = context
        self._words: dict[tuple[Region, int], Word] = {}
        self._told: dict[tuple[int, int], int] = {}
        """(reader, writer) -> the time of the writer's latest write of which the reader has seen something."""
        self._now = 0
        self._code = code = context.machine.code
        self._modifies = code.fact("modified words", lambda: modified_words(code))

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if place.space != "global" or not frame.operation.order.strong:
            return
        state, words = self.context.state(frame.cta), self._words
        for clock, offsets in self._each(state, frame, place):
            actor = state.actor(clock.me)
            for offset in offsets:
                key = (place.region, offset)
                word = words.get(key)
                if word is None:  # mostly a loop that polls a word it knows
                    word = words[key] = Word()
                if how == effects.WRITES:
                    self._store(state, frame, clock, word, actor, key)
                else:
                    self._look(word, actor, frame.operation if how == effects.READS else None)
                if how != effects.READS:
                    self._now += 1
                    word.last = Stored(actor, clock.epoch, self._now, frame.operation.pc in self._modifies)
                    word.writers[actor] = self._now

    @staticmethod
    def _each(state: ClusterState, frame: Frame, place: Lanes) -> Iterator[tuple[WarpClock, list[int]]]:
        """The words of a few lanes, in bytes, by warp."""
        for number, clock in enumerate(state.of_frame(frame)):
            index = np.unique(place.index[place.lanes >> 5 == number])
            if index.size <= FLAGS:
                yield clock, (index * place.size).tolist()

    def _look(self, word: Word, actor: int, load: Operation | None) -> None:
        """A warp sees the value of the word: by a load, or by an atomic."""
        word.looked[actor] = word.looked.get(actor, 0) + 1
        if load is not None:
            self._load(word, actor, load)
        for writer, when in word.writers.items():
            if when > self._told.get((actor, writer), 0):
                self._told[actor, writer] = when

    def _load(self, word: Word, actor: int, code: Operation) -> None:
        store, before = word.last, word.loads.get(actor)
        if before is not None and before.store is store and before.code is code:
            before.times += 1
        else:
            word.loads[actor] = Loaded(store, code, self._told.get((actor, store.actor), 0) > store.when)

    def _may_wait(self, load: int, store: int) -> bool:
        """True if the load is in a loop that waits for its value, and the store is not."""
        loops = self._code.fact(("waits", load), lambda: waits(self._code, load))
        return any(not first <= store <= last for first, last in loops)

    def _store(
        self, state: ClusterState, frame: Frame, clock: WarpClock, word: Word, actor: int, key: tuple[Region, int]
    ) -> None:
        loaded = word.loads.pop(actor, None)
        if loaded is None or loaded.times > 1 or word.last.actor in (0, actor):
            return
        blindly = (
            word.last.modifies
            and self._modifies.get(frame.operation.pc) == loaded.code.pc
            and word.looked.get(actor) == 1
        )
        if loaded.store is not word.last and not blindly:
            return
        if not blindly and (not loaded.told or self._may_wait(loaded.code.pc, frame.operation.pc)):
            return
        stored = word.last.actor, word.last.epoch
        if knows(clock, state, *stored) or self.context.told_without_release(state, clock, *stored, loaded.code):
            return  # ordered, or reported at the load (`global-hand-off`)
        code, warp = frame.operation, clock.me % state.per_cta
        if self.context.findings.seen("lost-update", (code, loaded.code)):
            return
        where = f"`{key[0].name}` at byte {key[1]}"
        self.context.findings.add(
            "lost-update",
            f"{who(frame.cta, warp)} loads {where} with {at(loaded.code)} and stores it with {at(code)}; "
            + (
                "another word shows that the warp which stored it before is past that store, but nothing orders the "
                "two: the load may have returned an older value"
                if loaded.told
                else "another warp did so before, and nothing orders the two: both may have loaded the same value"
            ),
            (code, loaded.code), frame.cta, warp, address=where,
        )  # fmt: skip
