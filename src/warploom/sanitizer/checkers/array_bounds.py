"""Checks that an access based on the address of a shared array stays inside that array.

Memory after the end of an array belongs to another array, and the machine accepts any byte of the CTA's shared
memory. The text says which arrays an access is meant for (`shared_origins`). If the author's names divide a variable,
its parts count as arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from ...emulator.engines.boxes import SharedBox
from ...emulator.engines.bulk import Bytes, Scattered
from ...emulator.machine.events import Observer
from ...emulator.machine.places import Lanes
from ...isa import effects
from ...plural import counted
from ..happens_before.access import flights_of
from ..report.findings import at
from ..report.words import actor
from ..shared_origins import Origin, Origins, address_origins

if TYPE_CHECKING:
    from ...emulator.machine.async_operation import AsyncOperation
    from ...emulator.machine.frame import Frame
    from ...emulator.machine.machine import Cta
    from ...emulator.machine.operation import Operation
    from ...emulator.machine.symbols import SharedPart
    from ..context import Context

Range: TypeAlias = "tuple[int, int, str]"
"""First byte of an array, first byte after it, and its name."""
NONE: tuple[Range, ...] = ()


class ArrayBounds(Observer):
    """See the module's docstring."""

    rules = ("shared-array-overflow",)

    def __init__(self, context: Context) -> None:
        self.context = context
        code = context.machine.code
        self._arrays = {
            variable.name: (variable.offset, variable.offset + variable.size, variable.name)
            for variable in code.shared_variables
            if variable.size
        }
        self._parts: dict[str, list[SharedPart]] = {}
        for part in code.shared_parts:
            self._parts.setdefault(part.variable, []).append(part)
        several = len(self._arrays) > 1 or any(len(parts) > 1 for parts in self._parts.values())
        self._origins = code.fact("address origins", lambda: address_origins(code)) if several else {}
        self._meant: dict[tuple[int, str], tuple[Range, ...]] = {}

    # -- events ----------------------------------------------------------------------------------------------------

    def accessed(self, frame: Frame, how: str, place: Lanes, values: np.ndarray | None) -> None:
        if place.space != "shared" or frame.operation.pc not in self._origins:
            return
        meant = self._ranges(frame.operation, effects.ISSUE)
        size = place.size * place.count
        first = place.index * place.size
        if meant and not _inside(first, size, meant):
            self._report(meant, frame.cta, frame.operation, first, size, place.lanes, frame.first_warp, how)

    def issued(self, operation: AsyncOperation) -> None:
        code = operation.issuer.operation
        if code.pc not in self._origins:
            return
        for flight in flights_of(operation):
            for places, how in ((operation.sources, effects.READS), (operation.targets, effects.WRITES)):
                meant = self._ranges(code, effects.RUN, how)
                for place in places if meant else ():
                    if getattr(place, "region", None) is not flight.cta.shared:
                        continue
                    first, size = _extent(place)
                    if first.size and not _inside(first, size, meant):
                        lanes = np.full(first.size, flight.warp * 32)
                        self._report(meant, flight.cta, code, first, size, lanes, 0, how)

    # -- what is meant -----------------------------------------------------------------------------------------------

    def _ranges(self, code: Operation, stage: str, how: str = "") -> tuple[Range, ...]:
        """The arrays that the accesses of an instruction may be meant for; none if that is unknown."""
        key = (code.pc, stage + how)
        found = self._meant.get(key)
        if found is None:
            names = dict.fromkeys(
                one.operand
                for one in effects.accesses(code.effects, stage)
                if one.space in ("", "shared") and (not how or (one.how == effects.READS) == (how == effects.READS))
            )
            known = [self._origins[code.pc].get(name) for name in names]
            found = self._meant[key] = NONE if None in known else self._arrays_of(known)  # type: ignore[arg-type]
        return found

    def _arrays_of(self, known: list[Origins]) -> tuple[Range, ...]:
        ranges: dict[Range, None] = {}
        for origin in (origin for origins in known for origin in origins):
            if origin is None or origin.variable not in self._arrays:
                return NONE
            for one in self._candidates(origin):
                ranges[one] = None
        return tuple(ranges)

    def _candidates(self, origin: Origin) -> list[Range]:
        """The array at an origin; for a divided variable, the parts at it."""
        whole = self._arrays[origin.variable]
        parts = self._parts.get(origin.variable)
        if not parts:
            return [whole]
        found = []
        for offset in {origin.offset, origin.offset + origin.moved}:
            inside = [part for part in parts if part.offset <= offset < part.offset + part.size]
            if not inside:
                return [whole]
            first = origin.start
            found += [(first + part.offset, first + part.offset + part.size, part.name) for part in inside]
        return found

    # -- reports -------------------------------------------------------------------------------------------------------

    def _report(
        self, meant: tuple[Range, ...], cta: Cta, code: Operation, first: np.ndarray, size: int, lanes: np.ndarray,
        first_warp: int, how: str,
    ) -> None:  # fmt: skip
        if self.context.findings.seen("shared-array-overflow", (code,)):
            return
        good = np.zeros(first.shape, np.bool_)
        for low, high, _ in meant:
            good |= (first >= low) & (first + size <= high)
        bad = int(np.flatnonzero(~good)[0])
        offset, warp = int(first[bad]), first_warp + int(lanes[bad]) // 32
        low, high, name = min(meant, key=lambda one: max(one[0] - offset, offset - one[1]))
        past = offset + size - high if offset >= low else low - offset
        where = "past its end" if offset >= low else "before its beginning"
        there = self.context.machine.code.name_shared(max(offset, high) if offset >= low else offset)
        verb = "reads" if how == effects.READS else "writes"
        self.context.findings.add(
            "shared-array-overflow",
            f"{actor(cta, warp)} {verb} {counted(size, 'byte')} with {at(code)} at an address based on `{name}`, "
            f"{counted(past, 'byte')} {where}: at `{there}`",
            (code,), cta, warp, address=there,
        )  # fmt: skip


def _inside(first: np.ndarray, size: int, meant: tuple[Range, ...]) -> bool:
    """True if all accesses of `size` bytes are inside one of the arrays."""
    least, most = int(first.min()), int(first.max()) + size
    if any(low <= least and most <= high for low, high, _ in meant):
        return True
    good = np.zeros(first.shape, np.bool_)
    for low, high, _ in meant:
        good |= (first >= low) & (first + size <= high)
    return bool(good.all())


def _extent(place: object) -> tuple[np.ndarray, int]:
    """First bytes and size of the shared memory accesses of an operation."""
    if isinstance(place, Bytes):
        return np.array([place.start]), place.size
    if isinstance(place, SharedBox):
        return np.array([place.offset]), place.rows * (place.row_bytes if place.contiguous else place.spec.pitch)
    if isinstance(place, Scattered):
        return place.index * place.size, place.size
    return np.empty(0, np.int64), 0
