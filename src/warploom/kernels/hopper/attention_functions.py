"""Functions of scores and masks written in Python, as in FlexAttention, traced into the kernel.

    score_mod(score, batch, head, query, key) -> score          score is f32 and scaled, the others are s32
    mask_mod(batch, head, query, key) -> bool

They receive `Value`s: registers with torch's arithmetic, which converts integers to floats if an operand is a float.
torch's functions accept them (`__torch_function__`): `attention_pointwise.FUNCTIONS` lists them.
Captured arrays become `Lookup`s, indexed by values or numbers; negative indices count from the end.

A value may have a `slope`: its derivatives with respect to the score, and to each element read from a captured array
whose gradient is wanted, which are also values. Derivatives are computed while the function is traced
(`Function.derive`). Where there is none, at the kinks of abs, minimum and similar functions, the slope is torch's.
What is computed or read under torch.no_grad(), or detached, has none.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...errors import SourceLocation, WarploomError
from ...isa.dtypes import ALL, DType, f32, pred, s32, u8, u64
from ...lang import ptx
from ...lang.predicate import Predicate
from ...lang.tile import ArrayHandle
from ...lang.values import Register
from . import attention_grad_mode, attention_pointwise  # noqa: F401 - the latter fills the table of functions
from .attention_integers import narrow_of
from .attention_values import SCORE, Slopes, Value, slope_of, trace_error, where

PACKAGE = str(Path(__file__).parents[2])


def _line_outside(error: Exception) -> SourceLocation | None:
    """The innermost line of the caller's code in the traceback: neither this package's nor torch's."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(PACKAGE) and "torch" not in Path(frame.filename).parts:
            return SourceLocation(frame.filename, frame.lineno or 0)
    return None


@dataclass
class Read:
    """An element that a function read from captured array number `array`.

    Attributes:
        at: its index in the array as if that were contiguous.
        slope: the function's derivative with respect to it.
    """

    array: int
    at: Value
    slope: Value = field(default_factory=lambda: Value(0.0))


@dataclass(frozen=True)
class Function:
    """A function and the arrays that it captures.

    Attributes:
        key: identifies everything that the traced PTX depends on.
        arrays: types, shapes and strides of the captured arrays; strides in elements, None for a contiguous array.
        call: called with the values and a Lookup for each array.
        where: the line where the caller defined the function, if it is known.
        wanted: numbers of the captured arrays whose gradients are wanted.
    """

    key: str
    arrays: tuple[tuple[str, tuple[int, ...], tuple[int, ...] | None], ...]
    call: Callable[[Sequence[Any], Sequence[Any]], Any] = field(compare=False, repr=False)
    where: SourceLocation | None = field(default=None, compare=False)
    wanted: tuple[int, ...] = ()

    def apply(self, handles: Sequence[ArrayHandle], *values: Register) -> Value:
        """Trace the function."""
        return self._traced(handles, values, None, None)

    def sees(self, handles: Sequence[ArrayHandle], *values: Register) -> Predicate:
        """Trace a function of masks. Raises TraceError unless it returns a bool."""
        found = self.apply(handles, *values)
        if not found.is_truth:
            raised = trace_error(
                "a function of masks returns something other than a bool", "a bool: a comparison, or .bool()",
                "a float" if found.is_float else "an integer",
            )  # fmt: skip
            raised.where = self.where or raised.where
            raise raised
        return found.truth()

    def derive(self, handles: Sequence[ArrayHandle], score: Register, *values: Register) -> tuple[Value, Value]:
        """Trace a function of scores and its derivative with respect to the score."""
        found = self._traced(handles, (score, *values), {SCORE: Value(1.0)}, None)
        return found, slope_of(found)

    def derive_reads(
        self, handles: Sequence[ArrayHandle], score: Register, *values: Register
    ) -> tuple[Value, Value, list[Read]]:  # fmt: skip
        """Like `derive`, with what was read of the `wanted` arrays."""
        reads: list[Read] = []
        found = self._traced(handles, (score, *values), {SCORE: Value(1.0)}, reads)
        for number, each in enumerate(reads):
            each.slope = slope_of(found, number)
        return found, slope_of(found), reads

    def _traced(
        self, handles: Sequence[ArrayHandle], values: Sequence[Register], slope: Slopes | None,
        reads: list[Read] | None,
    ) -> Value:  # fmt: skip
        given = [Value(value, natural=not value.dtype.is_float) for value in values]
        given[0].slope = slope
        notes = [
            None if reads is None or number not in self.wanted else Note(number, reads)
            for number in range(len(self.arrays))
        ]
        found = [
            Lookup(handle, *array, note=note) for handle, array, note in zip(handles, self.arrays, notes, strict=True)
        ]
        try:
            with attention_grad_mode.of_function():
                return Value.of(self.call(given, [each if each.ndim else each[()] for each in found]))
        except WarploomError as error:
            error.where = _line_outside(error) or self.where or error.where
            raise
        except Exception as error:  # raised by the caller's function
            failed = trace_error(
                "a function of scores or masks fails while it is traced into the kernel",
                "arithmetic, comparisons, torch's functions, captured arrays by index",
                f"{type(error).__name__}: {error}",
            )
            failed.where = _line_outside(error) or self.where or failed.where
            raise failed from error

    def gradients(self) -> dict[int, int]:
        """The numbers of elements of the arrays whose gradients are wanted."""
        return {number: math.prod(self.arrays[number][1]) for number in self.wanted}

    def sizes(self) -> list[tuple[int, DType]]:
        """Element counts, with those between the strides, and types of the arrays."""
        return [(_span(shape, steps), u8 if name == pred.name else ALL[name]) for name, shape, steps in self.arrays]


def _span(shape: tuple[int, ...], steps: tuple[int, ...] | None) -> int:
    if steps is None:
        return math.prod(shape)
    return 1 + sum((length - 1) * step for length, step in zip(shape, steps, strict=True))


@dataclass(frozen=True)
class Note:
    """Where reads of captured array number `array` are noted; `at`: the index of a subarray as if the array were
    contiguous."""

    array: int
    reads: list[Read]
    at: Value | None = None

    def of(self, found: Value) -> Value:
        """Note a read, of which the value gets its derivative."""
        assert self.at is not None
        self.reads.append(Read(self.array, self.at))
        return found.sloping({len(self.reads) - 1: Value(1.0)})


class Lookup:
    """A captured array inside the kernel, or the subarray left after its first indices.

    Attributes:
        shape: shape of the remaining array.
    """

    def __init__(
        self, array: ArrayHandle, dtype: str, shape: tuple[int, ...], steps: tuple[int, ...] | None = None,
        at: Value | None = None, note: Note | None = None,
    ) -> None:  # fmt: skip
        self._array, self._dtype, self._steps, self._at, self._note = array, dtype, steps, at, note
        self.shape, self.ndim = shape, len(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def size(self, axis: int | None = None) -> Any:
        """The same as torch.Tensor.size."""
        return self.shape if axis is None else self.shape[axis]

    def detach(self) -> Lookup:
        """The same array, of which no read is differentiated."""
        return Lookup(self._array, self._dtype, self.shape, self._steps, self._at)

    def dim(self) -> int:
        """The number of remaining indices."""
        return self.ndim

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a captured array has no {name!r} inside the kernel: use it outside of the function")

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> Any:
        cls._refuse(f"torch.{function.__name__}")

    @staticmethod
    def _refuse(got: str) -> Any:
        raise trace_error(
            "a captured array is only indexed inside the kernel", "array[index]; compute it outside", got
        )  # fmt: skip

    def __getitem__(self, index: Any) -> Any:
        places = index if isinstance(index, tuple) else (index,)
        if len(places) > self.ndim:
            raise trace_error("a captured array has fewer dimensions", self.ndim, f"{len(places)} indices")
        at = Value.of(0) if self._at is None else self._at
        note = self._note
        counted = None if note is None else Value.of(0) if note.at is None else note.at
        for number, (place, length) in enumerate(zip(places, self.shape, strict=False)):
            found = _place(place, length)
            at = at * length + found if self._steps is None else at + found * self._steps[number]
            counted = None if counted is None else at if self._steps is None else counted * length + found
        note = None if note is None or not attention_grad_mode.enabled() else replace(note, at=counted)
        left = self.shape[len(places) :]
        if left:
            return Lookup(self._array, self._dtype, left, self._steps and self._steps[len(places) :], at, note)
        dtype = self._array.dtype
        found = ptx.load(dtype, ptx.addr(self._array.pointer() + at.integer().to(u64) * dtype.bytes))
        if self._dtype == pred.name:
            return Value(found.to(s32) != 0)
        value = Value(found.to(f32) if dtype.is_float else found.to(s32), narrow=narrow_of(dtype, found))
        return value if note is None else note.of(value)


for _name in "add sub mul truediv floordiv mod pow neg and or xor invert lt gt".split():
    for _called in (f"__{_name}__", f"__r{_name}__"):
        setattr(Lookup, _called, lambda self, *_, got=_name: self._refuse(got))


def _place(index: Any, length: int) -> Value:
    """A nonnegative index: negative indices count from the end."""
    if isinstance(index, slice) or index is None or index is Ellipsis:
        raise trace_error("a captured array is indexed by whole numbers", "one for each dimension", repr(index))
    place = Value.of(index)
    if place.is_truth or place.is_float:
        raise trace_error("a captured array is indexed by whole numbers", "an integer", "a bool or a float")
    if isinstance(place.held, int):
        if not -length <= place.held < length:
            raise trace_error("an index is outside of a captured array", f"{-length} to {length - 1}", place.held)
        return Value(place.held % length)
    if place.natural:
        return place
    return where(place < 0, place + length, place)
