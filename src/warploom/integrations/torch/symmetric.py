"""PyTorch: memory that the GPUs of a group share, and the comparison of calls between ranks.

The memory is `torch.distributed._symmetric_memory`'s, allocated by all ranks at the first call of a shape, and kept.
Before that the ranks compare their calls in the group's store: if a rank makes another call, or none, it is named and
nothing is launched. A wait of a kernel times out after `config.peer_timeout_s` and records which counter did not arrive
(`collective.tile.bounded_wait`), in page-locked memory that the host reads without a synchronisation and kernels only
write. The next call reports the ranks that it waited for.

    agree      the calls of all ranks, compared through the store   -> ArgumentError, PeerError
    exchange   memory and counters of a call's shape
    check      waits of kernels that timed out                      -> PeerError
    forget     drop everything that is kept for a group
"""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ...collective.tile import timeout_record
from ...errors import ArgumentError, DriverError, PeerError
from ...settings import config as settings
from . import peer_rendezvous

_WORD = torch.int32
_LEFT = "left"
"""Replaces a rank's call in the store when its wait for the others has timed out."""


@dataclass(frozen=True)
class MemorySizes:
    """Sizes of a kernel's memory: `data` and `counters` that peers access, `state` of this GPU, a `record` of waits.

    Attributes:
        shape, dtype: of the data.
        counters, state, record: sizes in u32 words; counters may be 0.
        raised_by: returns the rank that raises a counter, by its index; None if several do.
        finished: the number of leading counters that count the launches each rank has ended.
        more: shapes and types of further arrays that peers access.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    counters: int
    state: int
    record: int
    raised_by: Callable[[int], int | None] = field(compare=False)
    finished: int = 0
    more: tuple[tuple[tuple[int, ...], torch.dtype], ...] = ()


@dataclass(frozen=True)
class Exchange:
    """The memory that a group's GPUs share, by rank; this GPU's own state; and the record of its waits.

    `host`: where this process reads the waits that timed out. `held`: owners of the memory, since a handle's view
    of a rank does not keep it alive. `more`: the further arrays, each by rank.
    """

    wanted: MemorySizes
    data: tuple[Tensor, ...]
    counters: tuple[Tensor, ...]
    state: Tensor
    record: Tensor
    host: Any
    held: tuple[Any, ...]
    more: tuple[tuple[Tensor, ...], ...] = ()

    def arguments(self) -> tuple[Any, ...]:
        """Return the kernel arguments."""
        return self.data, self.counters, self.state, self.record


class Group:
    """The ranks of a process group, with the memory and calls kept for them."""

    def __init__(self, name: str) -> None:
        from torch.distributed.distributed_c10d import _get_process_group_store, _resolve_process_group

        self.name = name
        self.process_group = _resolve_process_group(name)
        self.ranks, self.rank = dist.get_world_size(self.process_group), dist.get_rank(self.process_group)
        self.store = _get_process_group_store(self.process_group)
        self.calls: dict[Any, Exchange] = {}
        self.transfers: dict[Any, Any] = {}
        self.again: dict[Any, Any] = {}
        self.met: set[Any] = set()
        self.meeting, self.agreed = "", 0

    def lives(self) -> bool:
        """True if the name still refers to the same process group."""
        from torch.distributed.distributed_c10d import _resolve_process_group

        return _resolve_process_group(self.name) is self.process_group

    # -- what the others do ----------------------------------------------------------------------------------------

    def agree(self, call: tuple[object, ...]) -> None:
        """Compare a new call with those of the other ranks. Raises ArgumentError, PeerError."""
        try:
            others: list[str] = []
            missing = self._meet()
            if not missing:
                others, missing = self._compare(repr(call))
        except RuntimeError as error:  # of torch.distributed
            raise PeerError(
                f"the group's store did not answer when {call[0]} was compared", consequence="nothing was launched",
                expected="the process that has it, rank 0 or torchrun's, to live", got=str(error).partition("\n")[0],
            ) from error  # fmt: skip
        if missing:
            raise PeerError(
                f"rank {_listed(missing)} of the group did not come to {call[0]}",
                expected=f"the same call on all {self.ranks} ranks within {settings.peer_timeout_s:g} s",
                got=f"{self.ranks - len(missing)} ranks", consequence="nothing was launched",
                hint="has it died, or does it make another call?",
            )  # fmt: skip
        if left := [rank for rank, other in enumerate(others) if other == _LEFT]:
            raise PeerError(
                f"rank {_listed(left)} of the group came to {call[0]} and gave up waiting for this one",
                expected=f"all ranks within {settings.peer_timeout_s:g} s", consequence="nothing was launched",
                hint="warploom.torch.distributed.reset(group) on all ranks, then call again",
            )  # fmt: skip
        if different := [rank for rank, other in enumerate(others) if other != repr(call)]:
            rank = different[0]
            raise ArgumentError(
                "the ranks of the group make different calls", code="peer-call",
                expected=f"{call}, as on rank {self.rank}", got=f"{others[rank]} on rank {rank}",
                consequence="they would wait for each other's tiles; nothing was launched",
                hint=f"they differ in {_differences(call, literal_eval(others[rank]))}: give all ranks the same sizes, "
                "types and options",
            )  # fmt: skip

    def _compare(self, call: str) -> tuple[list[str], list[int]]:
        """Return the calls of all ranks, and the missing ranks."""
        keys = self._keys(self.agreed)
        self.agreed += 1
        self.store.set(keys[self.rank], call)
        missing = self._missing(keys)
        if missing:  # a later rank must not continue alone
            self.store.set(keys[self.rank], _LEFT)
            return [], missing
        others = [self.store.get(key).decode() for key in keys]
        if self.agreed > 1:  # all ranks are here, so they have read the previous comparison
            self.store.delete_key(self._keys(self.agreed - 2)[self.rank])
        return others, []

    def _keys(self, number: int) -> list[str]:
        """Return the ranks' store keys for a comparison."""
        return [f"warploom/{self.name}/{self.meeting}/{number}/{rank}" for rank in range(self.ranks)]

    def _meet(self) -> list[int]:
        """Meet before the first comparison, and return the missing ranks."""
        if self.meeting:
            return []
        self.meeting, missing = peer_rendezvous.rendezvous(
            self.store, f"warploom/{self.name}", self.rank, self.ranks, settings.peer_timeout_s
        )
        return missing

    def _missing(self, keys: Sequence[str]) -> list[int]:
        """Return the ranks still missing after the timeout."""
        for _ in peer_rendezvous.pauses(settings.peer_timeout_s):
            if self.store.check(list(keys)):
                return []
        return [rank for rank, key in enumerate(keys) if not self.store.check([key])]

    # -- memory ----------------------------------------------------------------------------------------------------

    def exchange(self, call: tuple[object, ...], device: torch.device, wanted: Callable[[], MemorySizes]) -> Exchange:
        """Return the memory of a call. A new call is compared with the other ranks' and its memory allocated.

        Raises as `agree`, and PeerError if an earlier launch gave up.
        """
        found = self.calls.get((device, call))
        if found is None:
            if _captured():
                raise ArgumentError(
                    f"{call[0]} is new, and a CUDA graph is being captured", code="capture", got=call,
                    expected="the same call once before the capture", consequence="nothing was launched",
                )  # fmt: skip
            self.check()
            self.agree(call)
            found = self.calls[device, call] = make(self, wanted(), device)
        elif settings.peer_compare and not _captured():
            self.agree(call)
        if found.host[0]:
            self.check()
        return found

    def meet(self, call: tuple[object, ...], device: torch.device) -> None:
        """Compare a call that exchanges and launches nothing, as `exchange` does. Raises as `agree`."""
        if (device, call) not in self.met or settings.peer_compare:
            self.agree(call)
            self.met.add((device, call))

    def check(self) -> None:
        """Raise PeerError if a wait of a kernel timed out."""
        for (_, call), made in self.calls.items():
            if not (waits := timeout_record.timed_out(made.host)):
                continue
            known = self._waited_for(made, waits)
            one = waits[0]
            raise PeerError(
                f"{call[0]} on rank {self.rank} gave up waiting for "
                + (f"rank {_listed(known)}" if known else "the other ranks"),
                expected=f"counter {one.index} to come to {one.target} within {settings.peer_timeout_s:g} s",
                got=f"{one.seen}; {len(waits)} waits timed out",
                consequence="what the launch wrote is worthless, and the group's counters no longer agree",
                hint="warploom.torch.distributed.reset(group) on all ranks makes them anew",
            )  # fmt: skip

    def _waited_for(self, made: Exchange, waits: Sequence[timeout_record.TimedOutWait]) -> list[int]:
        """Return the ranks that did not raise the awaited counters, as far as the counters tell."""
        known = {rank for each in waits if (rank := made.wanted.raised_by(each.index)) is not None}
        if not known and made.wanted.finished:
            ended = made.counters[self.rank][: made.wanted.finished].view(_WORD).tolist()
            known = {rank for rank, count in enumerate(ended) if count == min(ended)} - {self.rank}
        return sorted(known)

    def forget(self) -> None:
        """Free all memory and start afresh."""
        self.calls.clear()
        self.transfers.clear()
        self.again.clear()
        self.met.clear()
        self.meeting, self.agreed = "", 0


@lru_cache(maxsize=64)
def group_of(name: str) -> Group:
    """The group of a name; known until `group_of.cache_clear()`."""
    return Group(name)


def make(group: Group, wanted: MemorySizes, device: torch.device) -> Exchange:
    """Allocate memory that all ranks can access; a collective call."""
    import torch.distributed._symmetric_memory as symmetric

    held: list[Any] = []

    def shared(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, ...]:
        own = symmetric.empty(shape, dtype=dtype, device=device)
        own.zero_()
        handle = symmetric.rendezvous(own, group.name)
        held.extend((own, handle))
        return tuple(handle.get_buffer(rank, shape, dtype) for rank in range(handle.world_size))

    data = shared(wanted.shape, wanted.dtype)
    words = shared((wanted.counters,), _WORD) if wanted.counters else ()
    more = tuple(tuple(map(_words, shared(*each))) for each in wanted.more)
    state = torch.zeros(wanted.state, dtype=_WORD, device=device)
    with torch.cuda.device(device):
        pinned = torch.zeros(wanted.record, dtype=_WORD, pin_memory=True)
        record = torch.zeros(wanted.record, dtype=_WORD)
        record[timeout_record.TIMEOUT] = int(settings.peer_timeout_s * 1000)
        address = record[timeout_record.HOST : timeout_record.RECORD].view(torch.int64)
        address[0] = as_seen_by_gpu(pinned, device).data_ptr()
        record = record.to(device)
    torch.cuda.synchronize(device)
    group.agree(("the counters are zero",))
    return Exchange(
        wanted, tuple(map(_words, data)), tuple(map(_words, words)), _words(state), _words(record), pinned.numpy(),
        (*held, pinned), more,
    )  # fmt: skip


def rows_of_all(x: Tensor, group: str, *, autograd: bool = False) -> Tensor:
    """All-gather rows by the group's own collective; with a gradient if `autograd`. torch 2.13 renamed it."""
    from torch.distributed import _functional_collectives as collectives

    end = "_autograd" if autograd else ""
    names = (f"all_gather_single{end}", f"all_gather_tensor{end}")
    gather = next(getattr(collectives, name) for name in names if hasattr(collectives, name))
    return collectives.wait_tensor(gather(x, 0, group))


def _captured() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _words(array: Tensor) -> Tensor:
    """View s32 words as u32, as kernels take them."""
    return array.view(torch.uint32) if array.dtype is _WORD else array


class _Described:
    """Page-locked memory as an array of the GPU (CUDA Array Interface): both have one address space."""

    def __init__(self, pinned: Tensor) -> None:
        self.pinned = pinned
        self.__cuda_array_interface__ = {
            "data": (pinned.data_ptr(), False), "shape": tuple(pinned.shape), "typestr": "<i4", "version": 3,
        }  # fmt: skip


def as_seen_by_gpu(pinned: Tensor, device: torch.device) -> Tensor:
    """A CUDA tensor of the same page-locked memory."""
    seen = torch.as_tensor(_Described(pinned), device=device)
    if seen.data_ptr() != pinned.data_ptr():
        raise DriverError("torch copied page-locked memory that a GPU was to write to", got=torch.__version__)
    return seen


def _differences(call: tuple[object, ...], other: tuple[object, ...]) -> str:
    """What two calls do not have in common, as "4 (here) and 6"."""
    pairs = zip_longest(call, other, fillvalue="nothing")
    return ", ".join(f"{mine} (here) and {its}" for mine, its in pairs if mine != its)


def _listed(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))
