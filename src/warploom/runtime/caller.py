"""The public call of a kernel, made cheap: a call is checked only the first time.

A check depends only on each argument's address, shape, strides, dtype and device, and each number's value.
`launch_cache` remembers launches by them, so a call with known arrays costs reading addresses, one look-up and one
driver call. A program with a workspace has one for each stream. It is zeroed when created, and each launch restores
it. Such launches are also remembered by stream, and a captured graph gets its own workspace.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter, methodcaller
from typing import Any

from ..errors import ArgumentError
from . import on_cpu, on_gpu
from .bind import Shape
from .dispatch import flat_peers, look, named_views, place, result_of, sort_out
from .launch_cache import ADDRESS_CLASS, LaunchCache
from .launch_template import Launched
from .program import WORKSPACE, HasProgram, Program, program_of

_wrong_device = partial(ArgumentError, code="wrong-device")

_NUMBERS = (int, float)
_address, _size = methodcaller("data_ptr"), attrgetter("nbytes")


class Caller:
    """A callable program: `caller(a, b)`, `caller(a, b, out=c)`, `caller(a, b, out=c, stream=s)`.

    CUDA arrays run on their GPU, on the caller's current stream, asynchronously; host arrays run in the emulator with
    the settings of `config.emulator`. Returns the output array, a tuple of them, or None.
    """

    def __init__(self, program: Program | HasProgram) -> None:
        self.program = program_of(program)
        arrays = self.program.arrays
        self.cache = LaunchCache(max([ADDRESS_CLASS, *(spec.align for spec in arrays)]))
        self._hits = self.cache.hits
        self._names = [spec.name for spec in arrays]
        self._outs = [at for at, spec in enumerate(arrays) if spec.role == "out"]
        self._inputs = [spec.name for spec in arrays if spec.role not in ("out", WORKSPACE)]
        self._workspaces: on_gpu.Workspaces = {}
        self._owned = frozenset(spec.name for spec in arrays if spec.role == WORKSPACE)
        self._has_peers = any(spec.peers for spec in arrays)
        self._written = [spec.name for spec in arrays if spec.role == "inout"]

    def __call__(self, *args: Any, out: Any = None, stream: Any = None, **numbers: Any) -> Any:
        """Run it. Raises the errors of `launch` and `emulate`; nothing was launched then."""
        return self.run(args, out, stream, numbers)

    def run(self, args: tuple[Any, ...], out: Any, stream: Any, numbers: dict[str, Any]) -> Any:
        """`__call__` with its arguments already collected."""
        if self._has_peers:
            args = tuple(flat_peers(self.program, args))
        if self.cache.kinds:
            if out is not None and stream is None and not numbers:
                try:  # known tensors, written out: this is all that such a call costs
                    everything = *args, out
                    check, ready, current, launch = self._hits[(len(args), *map(_address, everything))]
                    if check(*everything):
                        handle = current()
                        if status := ready[handle]():
                            launch.check(status, handle)
                        return out
                except (AttributeError, KeyError, RuntimeError):  # not all tensors, or not seen before
                    pass
            made = self._again(args, out, stream, numbers)
            if made is not None:
                return self._result(args, out, made)
        return self._slow(args, out, stream, numbers)

    def launch_of(self, args: tuple[Any, ...], out: Any) -> Any:
        """The launch (`launch_cache.Hit`) of a call that repeats an earlier one with the same arrays, else None."""
        args = tuple(flat_peers(self.program, args)) if self._has_peers else args
        tensors, static = self._split(args, (out,), {})
        found = self._hits.get((static, *map(_address, tensors)))
        return None if found is None else found[3]

    def _again(self, args: tuple[Any, ...], out: Any, stream: Any, numbers: dict[str, Any]) -> Any:
        """The outputs of a repeated call, or of another call of the same kind; None if there was none."""
        tensors, static = self._split(args, () if out is None else out if type(out) is tuple else (out,), numbers)
        handle = None if stream is None else on_gpu.stream_handle(stream)
        try:
            if self._owned:
                handle = self.cache.raw_stream(tensors[0].get_device()) if handle is None else handle
                static = handle, static
            if self._outs and len(tensors) == len(self._inputs):  # the outputs are created
                form = (static, *map(_size, tensors))
                made = self.cache.fresh(form, tensors, handle)
                return made if made is not None else self.cache.again(static, tensors, form=form, stream=handle)
            key = (static, *map(_address, tensors))
            if self.cache.hit(key, tensors, handle):
                return ()
            return self.cache.again(static, tensors, key=key, stream=handle)
        except (AttributeError, IndexError, RuntimeError, TypeError):  # no arrays, or not torch tensors
            return None

    @staticmethod
    def _split(args: tuple[Any, ...], outs: tuple[Any, ...], named: dict[str, Any]) -> tuple[list[Any], Any]:
        """The arrays of a call, and what else its launch depends on; `named`: what was passed by name."""
        numbers = [(at, type(value), value) for at, value in enumerate(args) if type(value) in _NUMBERS]
        tensors = [value for value in (*args, *outs) if type(value) not in _NUMBERS]
        if named:
            return tensors, (len(args), *numbers, *((name, type(value), value) for name, value in named.items()))
        return tensors, (len(args), tuple(numbers)) if numbers else len(args)

    def _result(self, args: tuple[Any, ...], out: Any, made: tuple[Any, ...]) -> Any:
        """The return value of a call: outputs that were created, passed by name, or passed by position."""
        if made:
            return result_of(made)
        if out is not None:
            return result_of(tuple(out)) if isinstance(out, (tuple, list)) else out
        return result_of([args[at] for at in self._outs])

    def _slow(self, args: tuple[Any, ...], out: Any, stream: Any, numbers: dict[str, Any]) -> Any:
        """The full path: assign roles, choose the machine, check everything. GPU launches are remembered."""
        call = sort_out(self.program, args, out, numbers)
        views = look(call)
        named = named_views(call, views)
        device, index = place(self.program, named)
        if device == "cuda":
            prepared, outs = on_gpu.run(call, views, Shape(), stream, self._workspaces)
            found = named_views(call, views)
            if found and all(type(value) in _NUMBERS for value in numbers.values()):
                sources, bound = zip(*found, strict=True)
                passed = tuple(None if name in self._owned else name for name in sources)
                handle = None
                if self._owned:
                    handle = (
                        on_gpu.current_stream(list(bound), index) if stream is None else on_gpu.stream_handle(stream)
                    )
                launched = Launched(self.program, prepared, sources, passed, bound)
                self._remember(args, out, numbers, outs, launched, handle)
            return result_of(outs)
        if stream is not None:
            listing = ", ".join(f"`{name}` on {array.place}" for name, array in named)
            raise _wrong_device(
                "stream= needs a GPU, but these arrays are in host memory",
                expected="CUDA arrays, or no stream=",
                got=listing or "no array",
            )
        report = on_cpu.run(call, views)
        return result_of(report.outputs) if self.program.arrays else None

    def _remember(
        self, args: tuple[Any, ...], out: Any, numbers: dict[str, Any], outs: tuple[Any, ...], launched: Launched,
        stream: int | None,
    ) -> None:  # fmt: skip
        """Remember a launch for calls of its form: outputs by position, by `out=`, or created. stream: workspace's."""
        given = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
        tensors, static = self._split(args, given, numbers)
        static = (stream, static) if self._owned else static
        out_names = [self._names[at] for at in self._outs]
        passed = [name for name in launched.arrays if name is not None]
        if len(tensors) == len(passed):
            names = passed if out is None else [*self._inputs, *out_names]
            written = [*self._written, *out_names] if self._names else passed  # a text does not say which it writes
            named, made = dict(zip(names, tensors, strict=True)), {}
        elif len(tensors) == len(self._inputs):
            named, made = dict(zip(self._inputs, tensors, strict=True)), dict(zip(out_names, outs, strict=True))
            written = self._written
        else:
            return
        self.cache.remember(static, named, made, [launched], written, stream)
