"""The short way of a call that came before: from the tensors' addresses to the driver, in about a microsecond.

    quick       ->  Hit     plain calls: the addresses of all tensors; one check of theirs, the driver's call
    optional    ->  Hit     calls with more arguments: those and the addresses
    entries     ->  Entry   any calls: what was checked for tensors at these addresses; launches by output
    kinds       ->  Kind    what is the same for tensors of one kind at any address: how their launch is made anew

A hit in the first table costs reading addresses, one look-up, torch's own guard (shapes, strides, types, device,
gradients, in one call of C++) and the driver's call. A hit in the last (new memory, the same kind of tensors) encodes
the tensor maps that moved. Only torch tensors on a GPU come here; everything that was checked once depends on nothing
but what the keys and the guard hold.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeAlias

from .launch_template import Kind, OtherStream, template_of, together

KEPT = 8192
"""Entries, and kinds, that are remembered; then the older half is forgotten."""
OUTPUTS_KEPT = 512
"""Outputs of one entry."""
ADDRESS_CLASS = 16
"""Two addresses are of one kind if they are equal modulo this: what TMA, and the widest loads, ask of an address."""
QUICK = {("matmul",): "matmul", ("linear",): "linear", ("linear", "bias"): "biased"}
"""Calls without any other argument, by the tables they are in."""
WRAPPED = frozenset({"Tensor", "Parameter"})


class Entry:
    """What is known for tensors at certain addresses: their facts, and launches by the output's address."""

    __slots__ = ("device", "facts", "kind", "launches", "make", "out_facts", "pointers")

    def __init__(self, facts: tuple[Any, ...], pointers: tuple[int, ...], kind: Kind) -> None:
        self.facts, self.pointers, self.kind = facts, pointers, kind
        self.out_facts, self.make, self.device = kind.out_facts, kind.make, kind.device
        self.launches: dict[int, Any] = {}

    def launch_to(self, pointer: int) -> Any:
        """The launch that writes to an output at this address, or None where the long way must decide."""
        launch = self.launches.get(pointer)
        if launch is None:
            if pointer % ADDRESS_CLASS:
                return None
            launch = self.kind.at((*self.pointers, pointer))
            if launch is not None:
                if len(self.launches) >= OUTPUTS_KEPT:
                    self.launches.clear()
                self.launches[pointer] = launch
        return launch


Hit: TypeAlias = "tuple[Callable[..., bool], dict[int, Callable[[], Any]], int, Any]"
"""Guard of a, b and out; the driver's calls by stream; device; the launch."""


def guard(*tensors: Any) -> Callable[..., bool]:
    """A function that says of as many tensors whether they are as these: type, shape, strides, dtype, device, and
    whether a gradient is wanted. torch.compile's own guard, where this torch has it."""
    torch = sys.modules["torch"]
    try:
        made = torch._C._dynamo.guards.TensorGuards(
            *tensors, dynamic_dims_sizes=[list(tensor.shape) for tensor in tensors],
            dynamic_dims_strides=[list(tensor.stride()) for tensor in tensors],
        )  # fmt: skip
        other = tensors[0].as_strided((*tensors[0].shape, 1), (*tensors[0].stride(), 1))
        if made.check(*tensors) and not made.check(other, *tensors[1:]):
            return made.check
    except (AttributeError, TypeError, RuntimeError):
        pass
    return partial(_same, tuple(map(_all_of, tensors)))


def _all_of(tensor: Any) -> tuple[Any, ...]:
    wanted = tensor.requires_grad and sys.modules["torch"].is_grad_enabled()
    return type(tensor), tensor.shape, tensor.stride(), tensor.dtype, tensor.get_device(), wanted


def _same(facts: tuple[Any, ...], *tensors: Any) -> bool:
    return tuple(map(_all_of, tensors)) == facts


def facts_of(tensor: Any) -> tuple[Any, ...]:
    """All of a tensor, but its address, that a check depends on."""
    return tensor.shape, tensor.dtype, tensor.is_contiguous() or tensor.stride()


class Launches:
    """The tables, and the functions of torch that a hit needs."""

    def __init__(self) -> None:
        self.entries: dict[tuple[Any, ...], Entry] = {}
        self.kinds: dict[tuple[Any, ...], Kind] = {}
        self.quick: dict[str, dict[tuple[int, ...], Hit]] = {"matmul": {}, "linear": {}, "biased": {}}
        self.free: dict[str, dict[tuple[int, ...], tuple[Any, Entry]]] = {"matmul": {}, "linear": {}, "biased": {}}
        self.optional: dict[tuple[Any, ...], Hit | tuple[Any, Entry]] = {}
        self.tensor_types: frozenset[type] = frozenset()
        self.raw_stream: Callable[[int], int] = int
        self.grad_enabled: Callable[[], bool] = bool
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forget everything."""
        for table in (self.entries, self.kinds, self.optional, *self.quick.values(), *self.free.values()):
            table.clear()  # type: ignore[attr-defined]

    # -- finding ---------------------------------------------------------------------------------------------------

    def optional_again(self, key: tuple[Any, ...], tensors: list[Any], out: Any) -> Any:
        """The result of a call with more arguments that came before, or None. Raises TypeError where no hash is."""
        found = self.optional.get(key)
        if found is None:
            return None
        if out is None:
            same, entry = found  # type: ignore[misc]
            return self.run(entry, None) if same(*tensors) else None
        check, ready, device, launch = found  # type: ignore[misc]
        if not check(*tensors, out):
            return None
        stream = self.raw_stream(device)
        call = ready.get(stream)
        if call is None:
            return None
        if status := call():
            launch.check(status, stream)
        return out

    def again(
        self, static: tuple[Any, ...], tensors: tuple[Any, ...], out: Any, again: tuple[Any, ...] | None = None
    ) -> Any:
        """The result of a call that came before, or None. The general way: any tensors, any other arguments.

        static: all arguments that are no tensors, and which tensors there are. again: key and tensors as
        `optional_again` takes them, to be remembered there.
        """
        try:
            pointers = tuple([tensor.data_ptr() for tensor in tensors])
            facts = tuple([facts_of(tensor) for tensor in tensors])
            if self.grad_enabled() and any([tensor.requires_grad for tensor in tensors]):
                return None
        except (AttributeError, RuntimeError):
            return None
        entry = self.entries.get((static, pointers))
        if entry is None or entry.facts != facts:
            entry = self.moved(static, tensors, pointers, facts)
            if entry is None:
                return None
        result = self.run(entry, out)
        if result is not None:
            self.hasten(static, pointers, tensors, out, entry)
            if again is not None:
                self.hasten_optional(again[0], again[1], out, entry)
        return result

    def hasten_optional(self, key: tuple[Any, ...], tensors: list[Any], out: Any, entry: Entry) -> None:
        """Put a call with more arguments into its table; those whose inputs are all at hand."""
        if out is None:
            made: Any = guard(*tensors), entry
        else:
            launch = entry.launches[out.data_ptr()]
            made = guard(*tensors, out), launch.calls, entry.device, launch
        with self._lock:
            bounded(self.optional)[key] = made

    def hasten(
        self, static: tuple[Any, ...], pointers: tuple[int, ...], tensors: tuple[Any, ...], out: Any, entry: Entry
    ) -> None:
        """Put a plain call into the tables that are asked first."""
        name = QUICK.get(static)
        if name is None:
            return
        if out is None:
            made = guard(*tensors), entry
            with self._lock:
                bounded(self.free[name])[pointers] = made
            return
        launch = entry.launches[out.data_ptr()]
        hit = guard(*tensors, out), launch.calls, entry.device, launch
        with self._lock:
            bounded(self.quick[name])[(*pointers, out.data_ptr())] = hit

    def moved(
        self, static: tuple[Any, ...], tensors: tuple[Any, ...], pointers: tuple[int, ...], facts: tuple[Any, ...]
    ) -> Entry | None:
        """The entry of tensors of a known kind at new addresses."""
        kind = self.kinds.get(kind_key(static, tensors, facts))
        if kind is None or {type(tensor).__name__ for tensor in tensors} - WRAPPED:
            return None
        entry = Entry(facts, pointers, kind)
        with self._lock:
            bounded(self.entries)[static, pointers] = entry
        return entry

    def run(self, entry: Entry, out: Any) -> Any:
        """Launch; the output, or None where the long way must decide."""
        if out is None:
            out = entry.make()
        elif (out.shape, out.dtype, out.is_contiguous() or out.stride(), out.get_device()) != entry.out_facts or (
            out.requires_grad and self.grad_enabled()
        ):
            return None
        launch = entry.launch_to(out.data_ptr())
        if launch is None:
            return None
        handle = self.raw_stream(entry.device)
        call = launch.calls.get(handle)
        if call is None:
            try:
                launch(handle)
            except OtherStream:
                return None
        elif status := call():
            launch.check(status, handle)
        return out

    # -- remembering -----------------------------------------------------------------------------------------------

    def remember(self, static: tuple[Any, ...], named: dict[str, Any], result: Any, launched: list[Any]) -> None:
        """Keep what a call launched, for calls of its kind. named: its tensors, in the order of later keys.

        Not kept: calls with arrays that are no plain torch tensors.
        """
        torch = sys.modules.get("torch")
        tensors = tuple(named.values())
        if torch is None or {type(tensor) for tensor in (*tensors, result)} - {torch.Tensor, torch.nn.Parameter}:
            return
        self.raw_stream, self.grad_enabled = torch._C._cuda_getCurrentRawStream, torch.is_grad_enabled
        self.tensor_types = frozenset({torch.Tensor, torch.nn.Parameter})
        order = {name: at for at, name in enumerate((*named, "out"))}
        if "residual" in order:
            order["c"] = order["residual"]  # the same argument of the kernel
        everything = (*tensors, result)
        pointers = tuple(tensor.data_ptr() for tensor in tensors)
        templates = tuple(template_of(each, order, (*pointers, result.data_ptr())) for each in launched)
        facts = tuple(facts_of(tensor) for tensor in tensors)
        device = launched[0].views[0].index
        ours = any(name is None for each in launched for name in each.arrays)
        stream = self.raw_stream(device) if ours else None
        shape, dtype = tuple(result.shape), result.dtype
        kind = Kind(
            templates, tuple(span_of(tensor) for tensor in everything), (*facts_of(result), result.get_device()),
            partial(torch.empty, shape, dtype=dtype, device=result.device), device, stream,
        )  # fmt: skip
        launch = together(tuple(each.launch for each in templates), stream)
        entry = Entry(facts, pointers, kind)
        entry.launches[result.data_ptr()] = launch
        with self._lock:
            if kind.out_facts[2] is True and result.data_ptr() % ADDRESS_CLASS == 0:
                bounded(self.kinds)[kind_key(static, tensors, facts)] = kind
            bounded(self.entries)[static, pointers] = entry


def kind_key(static: tuple[Any, ...], tensors: tuple[Any, ...], facts: tuple[Any, ...]) -> tuple[Any, ...]:
    """What tensors of one kind have in common: all but their addresses, of which how they are aligned stays."""
    return static, facts, tuple((tensor.data_ptr() % ADDRESS_CLASS, tensor.get_device()) for tensor in tensors)


def span_of(tensor: Any) -> int:
    """Bytes from the first element to behind the last; strides of torch tensors are never negative."""
    if tensor.numel() == 0:
        return 0
    last = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def bounded(table: dict[Any, Any]) -> dict[Any, Any]:
    """The table, its older half forgotten where it has grown too large."""
    if len(table) >= KEPT:
        for key in list(table)[: KEPT // 2]:
            table.pop(key, None)
    return table


@lru_cache(maxsize=1)
def launches() -> Launches:
    """The process's tables."""
    return Launches()
