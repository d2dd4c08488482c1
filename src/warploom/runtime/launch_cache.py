"""The fast path of a repeated call: from its tensors to the driver, in a few microseconds.

    hits     ->  Hit          exact calls: all addresses, outputs too; one guard, then the driver's call
    forms    ->  Form, …      calls that create their outputs, by sizes: one guard, then the addresses are written
    kinds    ->  Kind         what tensors of one kind share at any address: their launches
    growths  ->  Growth       what calls share whose tensors differ by the length of a cache

Memory moves from call to call, when a cache grows or another model runs in between, so a launch depends on addresses
only by what is written into its parameters. A guard is torch's own (type, shape, strides, dtype, device, gradient, in
one call of C++). Only torch tensors on a GPU use this path. The checks that are skipped depend only on what the keys
and the guards contain.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from .launch_growth import Growth, without_length
from .launch_template import Kind, Launched, OtherStreamError, is_capturing

MOST_KEPT = 8192
"""Maximum number of hits, forms and kinds; beyond it the older half is dropped."""
MOST_FORMS = 8
"""Maximum number of guards of one form: of tensors with the same sizes that differ otherwise."""
MOST_LENGTHS = 16
"""Maximum number of lengths of one growth."""
ADDRESS_CLASS = 16
"""Addresses that are equal modulo this are of one kind: the alignment that TMA, and the widest loads, need."""

Hit: TypeAlias = "tuple[Callable[..., bool], dict[int, Callable[[], Any]], Callable[[], int], Any]"
"""The guard of the tensors, outputs last; the driver's calls by stream; the function that returns the current stream;
the launch."""
Form: TypeAlias = "tuple[Callable[..., bool], Kind]"
"""The guard of the tensors, and their kind at aligned addresses."""


class LaunchCache:
    """The launches of one function.

    Args:
        alignment: addresses of one kind must be equal modulo this number of bytes.
        differentiable: a tensor that requires a gradient takes the full path, even if it is only read.
        patience: repeated calls before one gets a guard, which costs as much as several calls.
    """

    def __init__(self, alignment: int = ADDRESS_CLASS, differentiable: bool = False, patience: int = 1) -> None:
        self.alignment, self.differentiable, self.patience = alignment, differentiable, patience
        self.hits: dict[Any, Hit] = {}
        self.forms: dict[Any, tuple[Form, ...]] = {}
        self.kinds: dict[Any, Kind] = {}
        self.growths: dict[Any, Growth] = {}
        self.growing: dict[Any, dict[int, int]] = {}
        self._guards: dict[Any, Callable[..., bool]] = {}
        self._currents: dict[int, Callable[[], int]] = {}
        self.tensor_types: frozenset[type] = frozenset()
        self.raw_stream: Callable[[int], int] = int
        self.grad_enabled: Callable[[], bool] = bool
        self.forward_mode: Any = None
        self._lock = threading.Lock()

    def clear(self) -> None:
        """Forget everything."""
        for table in (self.hits, self.forms, self.kinds, self.growths, self.growing, self._guards):
            table.clear()

    # -- finding ---------------------------------------------------------------------------------------------------

    def hit(self, key: Any, tensors: Sequence[Any], stream: int | None = None) -> bool:
        """Repeat an exact call; False if it is new.

        tensors: including the outputs that the caller passes. Raises TypeError for a key without a hash.
        """
        found = self.hits.get(key)
        if found is None:
            return False
        check, ready, current, launch = found
        if not check(*tensors) or self.forward_mode._current_level >= 0:
            return False
        handle = current() if stream is None else stream
        call = ready.get(handle)
        if call is None:
            try:
                launch(handle)
            except OtherStreamError:
                return False
        elif status := call():
            launch.check(status, handle)
        return True

    def fresh(self, form: Any, tensors: Sequence[Any], stream: int | None = None) -> Any:
        """The outputs of a call of a known form, which are created; None if it is new.

        form: by which `again` stored it, with the tensors' sizes. Raises TypeError for one without a hash.
        """
        for check, kind in self.forms.get(form, ()):
            if check(*tensors):
                return self._create(kind, tensors, stream)
        return None

    def _create(self, kind: Kind, tensors: Sequence[Any], stream: int | None, aligned: bool = True) -> Any:
        """Launch to new outputs. Returns them, or None if the full path must decide."""
        if self.forward_mode._current_level >= 0:  # the checks will refuse tensors with tangents
            return None
        pointers, bits = [], 0
        for tensor in tensors:
            pointer = tensor.data_ptr()
            pointers.append(pointer)
            bits |= pointer
        outs = []
        for make in kind.makes:
            out = make()
            outs.append(out)
            pointer = out.data_ptr()
            pointers.append(pointer)
            bits |= pointer
        if aligned and bits % self.alignment:
            return None
        return outs if kind.run(pointers, self.raw_stream(kind.device) if stream is None else stream) else None

    def again(
        self, static: Any, tensors: Sequence[Any], outs: tuple[Any, ...] = (), key: Any = None, form: Any = None,
        stream: int | None = None,
    ) -> tuple[Any, ...] | None:  # fmt: skip
        """The outputs of a call of a known kind, or None. Raises TypeError if `static` has no hash.

        static: all arguments but the tensors, and which tensors there are. outs: the outputs that the caller passes;
        without them they are created. key: in `hits`, where a call that comes again is stored. form: in `forms`.
        """
        try:
            everything = (*tensors, *outs) if outs else tensors
            pointers = tuple([tensor.data_ptr() for tensor in everything])
            facts = self._facts(everything, pointers)
            kind = self.kinds.get((static, facts))
        except (AttributeError, RuntimeError):  # not tensors, or tensors without memory
            return None
        if kind is None and static in self.growing:
            kind = self._grown(static, everything, facts)
        if kind is None or any([type(tensor) not in self.tensor_types for tensor in everything]):
            return None
        if self.forward_mode._current_level >= 0:
            return None
        if self.grad_enabled():
            watched = everything if self.differentiable else [everything[at] for at in kind.written]
            if any([tensor.requires_grad for tensor in watched]):
                return None
        if kind.written and kind.overlap(pointers):
            return None
        if kind.makes:
            aligned = not any([each % self.alignment for each in pointers])
            made = self._create(kind, tensors, stream, aligned)
            kind.uses += 1
            if made is not None and form is not None and aligned and kind.uses >= self.patience:
                with self._lock:
                    known = self.forms.get(form, ())[-MOST_FORMS + 1 :]
                    bounded(self.forms)[form] = (*known, (self._guard(facts, tensors), kind))
            return made
        if not kind.run(pointers, self.raw_stream(kind.device) if stream is None else stream):
            return None
        if key is not None and kind.repeated(pointers):
            launch = kind.fixed(pointers)
            with self._lock:
                current = self._currents.setdefault(kind.device, partial(self.raw_stream, kind.device))
                bounded(self.hits)[key] = self._guard(facts, everything), launch.calls, current, launch
        return outs

    def _guard(self, facts: tuple[Any, ...], tensors: Sequence[Any]) -> Callable[..., bool]:
        """A guard of tensors, shared by all of the same facts: it is then in the cache, and is made once."""
        known = self._guards.get(facts)
        if known is None or not known(*tensors):  # they differ in what only a guard sees: a class, a gradient
            known = bounded(self._guards)[facts] = guard(*tensors)
        return known

    def _grown(self, static: Any, tensors: Sequence[Any], facts: tuple[Any, ...]) -> Kind | None:
        """The kind of a call that differs from an earlier one by the length of arrays that grow; None if there is
        none."""
        found = without_length(facts, self.growing[static])
        growth = self.growths.get((static, found[0])) if found is not None else None
        if found is None or growth is None:
            return None
        kind = growth.at(found[1], tuple(map(span_of, tensors)))
        with self._lock:
            bounded(self.kinds)[static, facts] = kind
            growth.recent.append((static, facts))
            if len(growth.recent) > MOST_LENGTHS:  # a cache that grows does not come back to a length
                self.kinds.pop(growth.recent.popleft(), None)
        return kind

    def _facts(self, tensors: Sequence[Any], pointers: Sequence[int]) -> tuple[Any, ...]:
        """Everything about tensors that a check depends on: of their addresses, only the alignment."""
        return tuple([
            (tensor.shape, tensor.dtype, tensor.is_contiguous() or tensor.stride(), tensor.get_device(),
             pointer % self.alignment)
            for tensor, pointer in zip(tensors, pointers)  # noqa: B905 - of the same length, and this is the fast path
        ])  # fmt: skip

    # -- remembering -----------------------------------------------------------------------------------------------

    def remember(
        self, static: Any, tensors: Mapping[str, Any], outs: Mapping[str, Any], launched: Sequence[Launched],
        written: Sequence[str] = (), stream: int | None = None, grows: Mapping[str, int] | None = None,
        length: str = "", cleared: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Remember the launches of a call, for calls of its kind. Only plain torch tensors are remembered.

        tensors: by name, in the order in which `again` gets them; outs: the outputs that `again` is passed or creates,
        always written; written: names of `tensors` that are also written. stream: of the launch, None: the current one.
        Launches that use the library's memory belong to it, and `static` of calls in several streams should name it.
        grows: the dimension by which tensors may differ in a later call that creates its outputs, by name; `length`:
        the program's name of it. Only that size and the tensor maps may depend on it. cleared: outputs that are zeros
        before the launches.
        """
        torch = sys.modules.get("torch")
        everything = (*tensors.values(), *outs.values())
        if torch is None or {type(tensor) for tensor in everything} - {torch.Tensor, torch.nn.Parameter}:
            return
        self.raw_stream, self.grad_enabled = torch._C._cuda_getCurrentRawStream, torch.is_grad_enabled
        self.forward_mode = torch.autograd.forward_ad
        self.tensor_types = frozenset({torch.Tensor, torch.nn.Parameter})
        order = {name: at for at, name in enumerate((*tensors, *outs))}
        pointers = tuple(tensor.data_ptr() for tensor in everything)
        device = launched[0].views[0].index
        owned = any(name is None for each in launched for name in each.arrays)
        if not owned:
            stream = None
        elif stream is None:
            stream = self.raw_stream(device)
        if stream is not None and is_capturing(stream):
            return  # its memory belongs to the graph
        launches = tuple(each.moving(order, pointers) for each in launched)
        spans = tuple(map(span_of, everything))
        given = Kind(launches, spans, tuple(order[name] for name in (*written, *outs)), (), device, stream)
        given.repeated(pointers)
        kinds = {(static, self._facts(everything, pointers)): given}
        if (
            outs
            and all(out.is_contiguous() for out in outs.values())
            and not any(pointer % self.alignment for pointer in pointers[len(tensors) :])
        ):
            makes = tuple(maker(out, name in cleared) for name, out in outs.items())
            inputs = pointers[: len(tensors)]
            facts = self._facts(tuple(tensors.values()), inputs)
            created = Kind(launches, spans, tuple(order[name] for name in written), makes, device, stream)
            kinds[static, facts] = created
            if grows:
                axes = {order[name]: axis for name, axis in grows.items()}
                found = without_length(facts, axes)
                if found is not None:
                    (first,) = launched
                    bounded(self.growths)[static, found[0]] = Growth(first, length, found[1], created)
                    bounded(self.growing)[static] = axes
        with self._lock:
            for key, kind in kinds.items():
                bounded(self.kinds)[key] = kind


def maker(like: Any, cleared: bool = False) -> Callable[[], Any]:
    """A function that creates a contiguous tensor like another one. cleared: of zeros."""
    torch = sys.modules["torch"]
    shape, dtype = tuple(like.shape), like.dtype
    slow = partial(torch.zeros if cleared else torch.empty, shape, dtype=dtype, device=like.device)
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    quick = getattr(guards, "_empty_strided_cuda", None) if like.is_cuda else None
    if quick is None or cleared:
        return slow
    device, allocate = like.get_device(), partial(quick, shape, torch.empty(shape, device="meta").stride(), dtype)

    def make() -> Any:
        made = allocate()  # on the current GPU, without the dispatcher
        return made if made.get_device() == device else slow()

    return make


def span_of(tensor: Any) -> int:
    """Bytes from the first element to the end of the last; strides of torch tensors are never negative."""
    if tensor.numel() == 0:
        return 0
    last = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


def bounded(table: dict[Any, Any]) -> dict[Any, Any]:
    """The table, without its older half if it has grown too large."""
    if len(table) >= MOST_KEPT:
        for key in list(table)[: MOST_KEPT // 2]:
            table.pop(key, None)
    return table


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
