"""The fast path of a repeated call: from its tensors' addresses to the driver, in about a microsecond.

    hits     ->  Hit     exact calls: all addresses; one guard over the tensors, then the driver's call
    entries  ->  Entry   checked tensors at their addresses; launches by the addresses of outputs
    kinds    ->  Kind    what tensors of one kind share at any address: how to recreate their launch

A hit costs reading addresses, one look-up, torch's own guard (type, shape, strides, dtype, device, gradient, in one
call of C++) and the driver's call. New memory of a known kind costs the tensor maps that moved. Only torch tensors on a
GPU use this path. The checks that are skipped depend only on what the keys and the guards contain.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from .launch_template import Kind, Launch, Launched, OtherStreamError, Template, as_one

MOST_KEPT = 8192
"""Maximum number of hits, entries and kinds; beyond it the older half is dropped."""
MOST_OUTPUTS = 512
"""Maximum number of launches of one entry."""
ADDRESS_CLASS = 16
"""Addresses that are equal modulo this are of one kind: the alignment that TMA, and the widest loads, need."""

Hit: TypeAlias = "tuple[Callable[..., bool], dict[int, Callable[[], Any]] | None, Callable[[], int], Any]"
"""The guard of the tensors, outputs last; the driver's calls by stream; the function that returns the current stream;
the launch. If outputs are created: the guard, None, the function that returns the current stream, the entry."""


class Entry:
    """Known tensors at certain addresses: their facts, and launches by the outputs' addresses."""

    __slots__ = ("device", "facts", "kind", "launches", "make", "pointers")

    def __init__(self, facts: tuple[Any, ...], pointers: tuple[int, ...], kind: Kind) -> None:
        self.facts, self.pointers, self.kind = facts, pointers, kind
        self.device = kind.device
        self.make = kind.makes[0] if kind.makes is not None and len(kind.makes) == 1 else None
        self.launches: dict[Any, Launch] = {}

    def launch_to(self, addresses: Any, alignment: int) -> Launch | None:
        """The launch that writes to outputs at these `addresses_of`, or None if the full path must decide."""
        outs = (addresses,) if type(addresses) is int else addresses
        if any([address % alignment for address in outs]):
            return None
        launch = self.kind.at((*self.pointers, *outs))
        if launch is not None:
            if len(self.launches) >= MOST_OUTPUTS:
                self.launches.clear()
            self.launches[addresses] = launch
        return launch


class LaunchCache:
    """The launches of one function.

    Args:
        alignment: addresses of one kind must be equal modulo this number of bytes.
        differentiable: a tensor that requires a gradient takes the full path, even if it is only read.
    """

    def __init__(self, alignment: int = ADDRESS_CLASS, differentiable: bool = False) -> None:
        self.alignment, self.differentiable = alignment, differentiable
        self.hits: dict[Any, Any] = {}  # values: Hit
        self.entries: dict[Any, Entry] = {}
        self.kinds: dict[Any, Kind] = {}
        self.tensor_types: frozenset[type] = frozenset()
        self.raw_stream: Callable[[int], int] = int
        self.grad_enabled: Callable[[], bool] = bool
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forget everything."""
        for table in (self.hits, self.entries, self.kinds):
            table.clear()

    # -- finding ---------------------------------------------------------------------------------------------------

    def hit(self, key: Any, tensors: Sequence[Any], stream: int | None = None) -> Any:
        """The outputs of a repeated exact call, () if it creates none; None if the call is new.

        tensors: including the outputs that the caller passes. Raises TypeError for a key without a hash.
        """
        found = self.hits.get(key)
        if found is None or not found[0](*tensors):
            return None
        _, ready, current, launch = found
        if ready is None:
            return self.run(launch, (), stream)
        handle = current() if stream is None else stream
        call = ready.get(handle)
        if call is None:
            try:
                launch(handle)
            except OtherStreamError:
                return None
        elif status := call():
            launch.check(status, handle)
        return ()

    def again(
        self, static: Any, tensors: Sequence[Any], outs: tuple[Any, ...] = (), key: Any = None,
        stream: int | None = None,
    ) -> tuple[Any, ...] | None:  # fmt: skip
        """The outputs of a call of a known kind, or None. Raises TypeError if `static` has no hash.

        static: all arguments but the tensors, and which tensors there are. outs: the outputs that the caller passes;
        without them they are created. key: in `hits`, where the call is then stored.
        """
        try:
            pointers = tuple([tensor.data_ptr() for tensor in tensors])
            facts = tuple([facts_of(tensor) for tensor in tensors])
        except (AttributeError, RuntimeError):  # not tensors, or tensors without memory
            return None
        entry = self.entries.get((static, pointers))
        if entry is None or entry.facts != facts:
            entry = self._moved(static, tensors, pointers, facts)
            if entry is None:
                return None
        if self.grad_enabled():
            written = entry.kind.written
            watched = tensors if self.differentiable else [tensors[at] for at in written if at < len(tensors)]
            if any([tensor.requires_grad for tensor in watched]) or any([out.requires_grad for out in outs]):
                return None
        if outs and tuple([(*facts_of(out), out.get_device()) for out in outs]) != entry.kind.out_facts:
            return None
        result = self.run(entry, outs, stream)
        if result is not None and key is not None:
            self._hasten(key, tensors, outs, entry)
        return result

    def fresh(self, entry: Entry) -> Any:
        """Launch to one new output. Returns the output, or None if the full path must decide."""
        if entry.make is None:
            return None
        out = entry.make()
        launch = entry.launches.get(out.data_ptr())
        if launch is not None:
            handle = self.raw_stream(entry.device)
            call = launch.calls.get(handle)
            if call is not None:
                if status := call():
                    launch.check(status, handle)
                return out
        return None if self.run(entry, (out,)) is None else out

    def run(self, entry: Entry, outs: tuple[Any, ...], stream: int | None = None) -> tuple[Any, ...] | None:
        """Launch. Returns the outputs, or None if the full path must decide."""
        if outs:
            addresses = addresses_of(outs)
        elif entry.make is not None:
            out = entry.make()
            outs, addresses = (out,), out.data_ptr()
        else:
            makes = entry.kind.makes
            if makes is None:
                return None
            outs = tuple([make() for make in makes])
            addresses = addresses_of(outs)
        launch = entry.launches.get(addresses)
        if launch is None:
            launch = entry.launch_to(addresses, self.alignment)
            if launch is None:
                return None
        handle = self.raw_stream(entry.device) if stream is None else stream
        call = launch.calls.get(handle)
        if call is None:
            try:
                launch(handle)
            except OtherStreamError:
                return None
        elif status := call():
            launch.check(status, handle)
        return outs

    def _hasten(self, key: Any, tensors: Sequence[Any], outs: tuple[Any, ...], entry: Entry) -> None:
        """Store a call among the hits."""
        made: Hit
        current = partial(self.raw_stream, entry.device)
        if entry.kind.out_facts and not outs:
            made = guard(*tensors), None, current, entry
        else:
            launch = entry.launches[addresses_of(outs)]
            made = guard(*tensors, *outs), launch.calls, current, launch
        with self._lock:
            bounded(self.hits)[key] = made

    def _moved(
        self, static: Any, tensors: Sequence[Any], pointers: tuple[int, ...], facts: tuple[Any, ...]
    ) -> Entry | None:
        """The entry of tensors of a known kind at new addresses."""
        kind = self.kinds.get(self._kind_key(static, tensors, facts))
        if kind is None or {type(tensor) for tensor in tensors} - self.tensor_types:
            return None
        entry = Entry(facts, pointers, kind)
        with self._lock:
            bounded(self.entries)[static, pointers] = entry
        return entry

    def _kind_key(self, static: Any, tensors: Sequence[Any], facts: tuple[Any, ...]) -> tuple[Any, ...]:
        """What tensors of one kind share: everything but their addresses, of which only the alignment counts."""
        return static, facts, tuple([(tensor.data_ptr() % self.alignment, tensor.get_device()) for tensor in tensors])

    # -- remembering -----------------------------------------------------------------------------------------------

    def remember(
        self, static: Any, tensors: Mapping[str, Any], outs: Mapping[str, Any], launched: Sequence[Launched],
        written: Sequence[str] = (), stream: int | None = None,
    ) -> None:  # fmt: skip
        """Remember the launches of a call, for calls of its kind. Only plain torch tensors are remembered.

        tensors: by name, in the order in which `again` gets them; outs: the outputs that `again` is passed or creates,
        always written; written: names of `tensors` that are also written. stream: of the launch, None: the current one.
        Launches that use the library's memory belong to it, and `static` of calls in several streams should name it.
        """
        torch = sys.modules.get("torch")
        everything = (*tensors.values(), *outs.values())
        if torch is None or {type(tensor) for tensor in everything} - {torch.Tensor, torch.nn.Parameter}:
            return
        self.raw_stream, self.grad_enabled = torch._C._cuda_getCurrentRawStream, torch.is_grad_enabled
        self.tensor_types = frozenset({torch.Tensor, torch.nn.Parameter})
        order = {name: at for at, name in enumerate((*tensors, *outs))}
        pointers = tuple(tensor.data_ptr() for tensor in everything)
        inputs, addresses = pointers[: len(tensors)], pointers[len(tensors) :]
        device = launched[0].views[0].index
        owned = any(name is None for each in launched for name in each.arrays)
        if not owned:
            stream = None
        elif stream is None:
            stream = self.raw_stream(device)
        if stream is not None and _is_capturing(stream):
            return  # its memory belongs to the graph
        contiguous = all(out.is_contiguous() for out in outs.values())
        empties = tuple(
            partial(torch.empty, tuple(out.shape), dtype=out.dtype, device=out.device) for out in outs.values()
        )
        kind = Kind(
            tuple(Template.of(each, order, pointers) for each in launched), tuple(map(span_of, everything)),
            tuple(order[name] for name in (*written, *outs)),
            tuple((*facts_of(out), out.get_device()) for out in outs.values()),
            empties if contiguous else None, device, stream,
        )  # fmt: skip
        facts = tuple(facts_of(tensor) for tensor in tensors.values())
        entry = Entry(facts, inputs, kind)
        entry.launches[addresses_of(tuple(outs.values()))] = as_one(tuple(each.launch for each in launched), stream)
        with self._lock:
            if contiguous and not any(address % self.alignment for address in addresses):
                bounded(self.kinds)[self._kind_key(static, tuple(tensors.values()), facts)] = kind
            bounded(self.entries)[static, inputs] = entry


def facts_of(tensor: Any) -> tuple[Any, ...]:
    """Everything about a tensor, except its address, that a check depends on."""
    return tensor.shape, tensor.dtype, tensor.is_contiguous() or tensor.stride()


def span_of(tensor: Any) -> int:
    """Bytes from the first element to the end of the last; strides of torch tensors are never negative."""
    if tensor.numel() == 0:
        return 0
    last = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def addresses_of(outs: tuple[Any, ...]) -> Any:
    """The address of the one output, or the addresses of several: the key of an entry's launches."""
    return outs[0].data_ptr() if len(outs) == 1 else tuple([out.data_ptr() for out in outs])


def bounded(table: dict[Any, Any]) -> dict[Any, Any]:
    """The table, without its older half if it has grown too large."""
    if len(table) >= MOST_KEPT:
        for key in list(table)[: MOST_KEPT // 2]:
            table.pop(key, None)
    return table


def _is_capturing(stream: int) -> bool:
    from ..driver import library

    return library.load().is_capturing(stream)


# -- guards --------------------------------------------------------------------------------------------------------


def guard(*tensors: Any) -> Callable[..., bool]:
    """A function that compares other tensors with these: type, shape, strides, dtype, device, and whether a gradient is
    required. It is torch.compile's own guard if this torch has it."""
    torch = sys.modules["torch"]
    try:
        made = torch._C._dynamo.guards.TensorGuards(
            *tensors, dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
            dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
        )  # fmt: skip
        other = tensors[0].as_strided((*tensors[0].shape, 1), (*tensors[0].stride(), 1))
        if made.check(*tensors) and not made.check(other, *tensors[1:]):
            # It compares only `requires_grad`: made under no_grad, it would pass with gradients on.
            return _without_gradients(made.check) if any(tensor.requires_grad for tensor in tensors) else made.check
    except (AttributeError, TypeError, RuntimeError, IndexError):
        pass
    return partial(_same, tuple(map(_all_of, tensors)))


def _without_gradients(check: Callable[..., bool]) -> Callable[..., bool]:
    """A guard of tensors that require gradients; it passes only while gradients are off, as they are now."""
    grad_enabled = sys.modules["torch"].is_grad_enabled
    if grad_enabled():
        return check

    def checked(*tensors: Any) -> bool:
        return not grad_enabled() and check(*tensors)

    return checked


def _all_of(tensor: Any) -> tuple[Any, ...]:
    wanted = tensor.requires_grad and sys.modules["torch"].is_grad_enabled()
    return type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), wanted


def _same(facts: tuple[Any, ...], *tensors: Any) -> bool:
    return tuple(map(_all_of, tensors)) == facts
