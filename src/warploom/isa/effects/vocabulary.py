"""The effects of an instruction on memory, on other threads and on concurrent units, as data.

A row of the instruction table (`instructions.schema.Form`) carries a tuple of effects. The emulator, the sanitizer, the
exhaustive search and the author's protocol table all read them, so that no second list of instructions can go stale.

A field of an effect may hold a `Choice`, which depends on a modifier of the opcode, or an `Operand`, a value known when
the instruction runs. `resolved` replaces the choices; the rest depends on the operands alone.

    Form("st.ordered", "st.sem.scope{.space}.type", "[a], b:type", …,
         effects=(Access(WRITES, "a", order=Order(Choice("sem"), Choice("scope"))),))
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

READS, WRITES, UPDATES = "reads", "writes", "updates"
"""Kinds of access; an update reads and writes at once, atomically if its order is strong."""
ISSUE, RUN = "issue", "run"
"""When an access happens: with the instruction, or when the operation that it starts runs."""
GENERIC, ASYNC, TENSORMAP, TENSOR = "generic", "async", "tensormap", "tensor"
"""Proxies (PTX ISA 8.6)."""
FOOTPRINTS: Mapping[str, str] = {
    "lanes": "each lane its own elements, from the operand's address on",
    "value": "the elements of one register operand, by one thread",
    "bytes": "as many bytes as an operand says",
    "masked_bytes": "as many bytes as an operand says, those of each 16 that a mask names",
    "box": "the box of a tensor map at the coordinates, in global memory",
    "shared_box": "the box of a tensor map in shared memory, swizzled",
    "object128": "a tensor map of 128 bytes",
    "descriptor": "the operand of a matrix descriptor",
    "matrix_rows": "rows of 16 bytes, whose addresses the lanes give",
    "fragment": "the fragment of wmma.load or wmma.store",
    "register": "the registers that the operand names",
    "accumulator": "the cells of an accumulator in tensor memory",
    "matrix_cells": "the cells of matrix A in tensor memory",
    "scale_cells": "the cells of the scale factors of A or B in tensor memory",
    "metadata_cells": "the cells of a sparse matrix's metadata in tensor memory",
    "fragment_cells": "the cells that a warp's registers name, in its quarter of tensor memory",
    "copied_cells": "the cells that tcgen05.cp fills",
    "shifted_cells": "the rows that tcgen05.shift moves",
    "response": "the 16 bytes that answer an asynchronous request",
}
"""The bytes that an access touches: names of functions, because addresses depend on operands."""


@dataclass(frozen=True)
class Operand:
    """The value of an operand when the instruction runs; `default` if the operand was omitted."""

    name: str
    default: Any = None


@dataclass(frozen=True)
class Choice:
    """The value of a modifier slot of the opcode.

    Attributes:
        slot: as in the row's opcode pattern; an optional literal is a slot of its own spelling.
        default: the value if the slot was omitted.
        means: value by modifier; a modifier that is not in it is its own value.
    """

    slot: str
    default: Any = None
    means: Mapping[str, Any] = field(default_factory=dict)

    def of(self, modifiers: Mapping[str, str | None]) -> Any:
        took = modifiers.get(self.slot)
        return self.default if took is None else self.means.get(took, took)


STATE_SPACE = Choice(
    "space", "", {"shared::cta": "shared", "shared::cluster": "shared", "param::entry": "param", "param::func": "param"}
)
"""The state space of a row with a slot `space`; "" for a generic address."""

Value: TypeAlias = "Any"
"""A plain value, a `Choice` or an `Operand`."""


@dataclass(frozen=True)
class Order:
    """Memory semantics and scope (PTX ISA 8.3.1, 8.5); volatile and mmio accesses are relaxed at .sys scope."""

    sem: Value = "weak"
    scope: Value = "cta"

    @property
    def strong(self) -> bool:
        return bool(self.sem != "weak")

    @property
    def acquires(self) -> bool:
        return self.sem in ("acquire", "acq_rel", "sc")

    @property
    def releases(self) -> bool:
        return self.sem in ("release", "acq_rel", "sc")


WEAK = Order()


@dataclass(frozen=True)
class Effect:
    """An effect of an instruction; `when`: the condition, if a modifier or an operand decides whether it occurs."""

    when: Value = field(default=True, kw_only=True)


# -- memory ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Access(Effect):
    """A read or write of memory, registers or tensor memory.

    Attributes:
        how: READS, WRITES or UPDATES.
        operand: the operand with the address, the descriptor or the registers.
        space: "global", "shared", "tensor", "register"…; "" if the address determines it.
        proxy: the proxy of the access.
        footprint: a name in FOOTPRINTS.
        at: ISSUE, or RUN for an access by the operation that the row starts.
        rank: the CTA whose shared or tensor memory it is: "own", "any" CTA of the cluster (by the address), "pair" (the
            same location in both CTAs of the pair), "mask:<operand>" or "all" CTAs of the cluster.
        lanes: "each" lane accesses its own part, or "any": the warp makes one access.
        returns: whether the thread receives the old value; a reduction that does not return it cannot acquire.
    """

    how: str
    operand: str
    space: Value = ""
    proxy: str = GENERIC
    footprint: str = "lanes"
    order: Order = WEAK
    at: str = ISSUE
    rank: Value = "own"
    lanes: str = "each"
    returns: bool = True


# -- asynchronous operations -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bytes:
    """Completion of an operation by the bytes that it completes on an mbarrier.

    `rank`: the CTA of the mbarrier: the "receiver" of the data, or one CTA of its "pair" (by the address).
    """

    barrier: str
    rank: Value = "receiver"


@dataclass(frozen=True)
class Group:
    """Completion of an operation by a wait for its group, by its `owner`: "thread" or "warpgroup"."""

    family: str
    owner: str = "thread"


@dataclass(frozen=True)
class Signalled:
    """Completion of an operation by the arrival that a commit of its `family` makes on an mbarrier."""

    family: str


@dataclass(frozen=True)
class Drained:
    """Completion of an operation by a wait for all operations of its `family` that the thread has started."""

    family: str


@dataclass(frozen=True)
class Starts(Effect):
    """The start of an operation that runs asynchronously to the instruction.

    Attributes:
        engine: the unit that runs it: "tma", "cp_async", "remote"…
        tracked: how its completion becomes known.
        parts: one operation per "lane", "warp" or "warpgroup" that executes the row.
        forks: the point of program order that it follows: its "issue", or "fence" for the family's last fence.
        pipeline: operations of one thread with the same key run in order; "" for none.
    """

    engine: str
    tracked: tuple[Bytes | Group | Signalled | Drained, ...] = ()
    parts: str = "lane"
    forks: str = ISSUE
    pipeline: str = ""

    @cached_property
    def group(self) -> str:
        """The family of groups in which it is waited for; "" if its completion becomes known otherwise."""
        return next((how.family for how in self.tracked if isinstance(how, Group)), "")

    @cached_property
    def committed_in(self) -> str:
        """The family whose commit covers it, by a group or by an arrival; "" if there is none."""
        return next((how.family for how in self.tracked if isinstance(how, (Group, Signalled))), "")


@dataclass(frozen=True)
class Commits(Effect):
    """A commit: the started operations of a family of a thread become a group.

    `covers`: the "uncommitted" operations, or "all" of the thread's. `signals`: an arrival made when they are complete.
    """

    family: str
    owner: str = "thread"
    covers: str = "uncommitted"
    signals: Arrives | None = None


@dataclass(frozen=True)
class Waits(Effect):
    """A wait of a thread.

    Attributes:
        on: "group:<family>", "drained:<family>" (all that the thread has started), "phase" of an mbarrier, or "grid"
            (the previous grid).
        operand: the barrier.
        newest: how many of the newest groups may still be pending.
        proves: what holds afterwards: the operations are "done", or have read their sources ("reads").
        order: what a wait on a phase acquires.
        may_fail: whether it returns a predicate instead of blocking.
    """

    on: str
    operand: str = ""
    newest: Value = 0
    proves: Value = "done"
    order: Order = WEAK
    may_fail: bool = False


@dataclass(frozen=True)
class Arrives(Effect):
    """An arrival on the mbarrier that an operand names.

    Attributes:
        count: arrivals; expects: bytes expected with them; drops: the next phases expect fewer arrivals.
        rank: "own", "any" CTA of the cluster, or "mask:<operand>": the same offset in each of those CTAs.
        engine: "remote" if the arrival takes time.
    """

    barrier: str
    count: Value = 1
    expects: Value = 0
    drops: bool = False
    order: Order = Order("release", "cta")
    rank: Value = "own"
    engine: str = ""


@dataclass(frozen=True)
class Expects(Effect):
    """An expectation: the current phase of an mbarrier expects more bytes or arrivals; with `completes`, bytes have
    arrived."""

    barrier: str
    bytes: Value = 0
    pending: Value = 0
    completes: bool = False
    rank: str = "own"
    order: Order = WEAK


@dataclass(frozen=True)
class Synchronises(Effect):
    """A synchronisation of threads.

    Attributes:
        kind: the threads: "lanes" of a warp, "cta", "cluster", or "pair": a warp of each CTA of the pair.
        key: the operand that names the barrier; count: the number of threads; members: the operand with a mask.
        part: "arrive", "wait" or "both".
        orders: whether earlier memory accesses happen before later ones.
    """

    kind: str
    key: str = ""
    count: Value = None
    members: str = ""
    part: str = "both"
    orders: bool = True
    order: Order = Order("acq_rel", "cta")


@dataclass(frozen=True)
class Fences(Effect):
    """A fence.

    Attributes:
        kind: "memory", "proxy:async", "proxy:tensormap", "proxy:alias", "mbarrier_init", "registers:<family>", or
            "thread_sync:<family>": orders the family's operations with the thread's synchronisation.
        spaces: "all", "shared" or "global".
        direction: of a proxy fence: "both", "release" or "acquire".
        object: the operand with the address of the fenced object.
    """

    kind: str
    spaces: Value = "all"
    direction: Value = "both"
    order: Order = WEAK
    object: str = ""


@dataclass(frozen=True)
class Creates(Effect):
    """Creation of an object at an operand's address; `count` is its initial count."""

    object: str
    operand: str
    count: Value = None


@dataclass(frozen=True)
class Destroys(Effect):
    """Destruction of an object."""

    object: str
    operand: str


@dataclass(frozen=True)
class Changes(Effect):
    """Modification of an object."""

    object: str
    operand: str


@dataclass(frozen=True)
class Allocates(Effect):
    """Allocation from a pool: the thread waits until there is enough, or fails if it does not block."""

    pool: str
    amount: Value
    blocks: bool = True


@dataclass(frozen=True)
class Frees(Effect):
    """Release to a pool."""

    pool: str
    amount: Value


@dataclass(frozen=True)
class Permits(Effect):
    """Permission for something to start, such as the next grid."""

    what: str


@dataclass(frozen=True)
class Leaves(Effect):
    """The end of a thread, or a return from a function."""


KINDS: tuple[type[Effect], ...] = tuple(Effect.__subclasses__())
"""All kinds of effects."""


def resolved(effects: Iterable[Effect], modifiers: Mapping[str, str | None]) -> tuple[Effect, ...]:
    """The effects of one opcode: choices replaced by its modifiers' values, effects that do not apply omitted."""
    made = (_filled(effect, modifiers) for effect in effects)
    return tuple(effect for effect in made if effect.when is not False)


def _filled(value: Any, modifiers: Mapping[str, str | None]) -> Any:
    if isinstance(value, Choice):
        return value.of(modifiers)
    if isinstance(value, tuple):
        return tuple(_filled(one, modifiers) for one in value)
    if not is_dataclass(value) or isinstance(value, Operand):
        return value
    changed = {}
    for one in fields(value):
        before = getattr(value, one.name)
        after = _filled(before, modifiers)
        if after is not before:
            changed[one.name] = after
    return replace(value, **changed) if changed else value  # type: ignore[type-var]
