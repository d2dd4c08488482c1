"""A traced launch as few bytes: its events as columns of the smallest integers that hold them, deflated.

The format is a 4-byte length, that many bytes of JSON (names, texts, and the offset of each column), and the columns,
each aligned to 8 bytes. Times are ticks. A start is stored as the difference from the previous start, and a reference
to another event as the distance in events, 0 for none.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from ...asm.demangle import readable
from ..result import Prediction, alike
from ..timeline import KINDS, Event
from ..tracing import Traced, Waiter

TICKS = 64
"""Ticks per clock, if the whole run is short enough."""
MOST_TICKS = 2**31 - 1
TYPES = (np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32)
LEVEL = 6


class Names:
    """Texts numbered in order of first use."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, name: Any) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def column(self, names: Iterable[Any]) -> np.ndarray:
        number = self.number
        return np.fromiter((number(name) for name in names), np.int64)

    def __iter__(self) -> Any:
        return iter(self._numbers)


def packed(traced: Traced) -> bytes:
    """Return the deflated bytes of a launch."""
    timeline = traced.timeline
    events = timeline.events
    end = timeline.end
    ticks = float(min(TICKS, 2 ** math.floor(math.log2(MOST_TICKS / max(end, 1.0)))))
    words, barriers, roles, places = Names(), Names(), Names(), Names()
    columns = _columns(events, ticks, words, barriers, roles, places)
    described: list[dict[str, Any]] = []
    blob = bytearray()
    for name, values in columns.items():
        narrow: np.ndarray = values.astype(_type(values))
        blob += b"\0" * (-len(blob) % 8)
        described.append({"name": name, "type": narrow.dtype.name, "at": len(blob)})
        blob += narrow.astype(narrow.dtype.newbyteorder("<")).tobytes()
    head = {
        "kernel": readable(timeline.kernel), "arguments": traced.arguments, "mhz": timeline.clock_mhz,
        "ticks": ticks, "end": end, "count": len(events),
        "grid": timeline.grid, "block": timeline.block, "cluster": timeline.cluster, "complete": timeline.complete,
        "sharedBytes": timeline.shared_bytes, "residents": timeline.residents, "error": readable(traced.error),
        "model": traced.model, "guessed": traced.guessed,
        "sm": {str(cta): sm for cta, sm in timeline.sm.items()}, "kinds": list(KINDS), "explained": dict(KINDS),
        "prediction": _shown(traced.prediction) if traced.prediction is not None else None,
        "pins": [asdict(pin) | {"text": readable(pin.text)} for pin in traced.pins],
        "waiters": [_told(one) for one in traced.waiters],
        "words": [readable(word) for word in words], "barriers": [readable(name) for name in barriers],
        "roles": list(roles), "places": list(places),
        "columns": described,
        "code": {
            "ptx": traced.code.ptx.splitlines(), "sass": traced.code.sass, "noSass": traced.code.no_sass,
            "python": {file: text.splitlines() for file, text in traced.code.python.items()},
        },
    }  # fmt: skip
    text = json.dumps(head, separators=(",", ":")).encode()
    start = text + b" " * (-(4 + len(text)) % 8)
    return zlib.compress(len(start).to_bytes(4, "little") + start + bytes(blob), LEVEL)


def _shown(prediction: Prediction) -> dict[str, Any]:
    """A prediction as the page shows it: in one line, with the waits of warps that wait alike in one entry."""
    return prediction.as_dict() | {"said": prediction.headline(), "waits": alike(prediction.waits)}


def _told(waiter: Waiter) -> dict[str, Any]:
    came = tuple(readable(text) for text in waiter.came)
    return asdict(waiter) | {"what": readable(waiter.what), "missing": readable(waiter.missing), "came": came}


def _columns(
    events: Sequence[Event], ticks: float, words: Names, barriers: Names, roles: Names, places: Names
) -> dict[str, np.ndarray]:
    count = len(events)
    here = np.arange(count)

    def numbers(name: str) -> np.ndarray:
        return np.fromiter((getattr(event, name) for event in events), np.float64, count)

    def times(values: np.ndarray) -> np.ndarray:
        return np.round(values * ticks).astype(np.int64)

    def other(name: str) -> np.ndarray:
        found = numbers(name).astype(np.int64)
        return np.where(found < 0, 0, found - here)

    kinds = {kind: number for number, kind in enumerate(KINDS)}
    start, end = times(numbers("start")), times(numbers("end"))
    busy = np.array([event.busy for event in events], np.float64).reshape(-1, 2)
    read = numbers("read")
    group = numbers("group").astype(np.int64)
    return {
        "kind": np.fromiter((kinds[event.kind] for event in events), np.int64, count),
        "start": np.diff(start, prepend=0),
        "length": end - start,
        "cta": numbers("cta").astype(np.int64),
        "warp": numbers("warp").astype(np.int64),
        "role": roles.column(event.role for event in events),
        "what": words.column(event.what for event in events),
        "place": places.column((event.opcode, event.file, event.line, event.ptx_line) for event in events),
        "barrier": barriers.column(event.barrier for event in events),
        "phase": numbers("phase").astype(np.int64),
        "stage": numbers("stage").astype(np.int64),
        "cause": other("cause"),
        "issuer": other("issuer"),
        "bytes": numbers("bytes").astype(np.int64),
        "flops": numbers("flops").astype(np.int64),
        "instructions": numbers("instructions").astype(np.int64),
        "busyFrom": np.where(busy[:, 0] < 0, 0, times(busy[:, 0]) - start),
        "busyFor": np.where(busy[:, 0] < 0, 0, times(busy[:, 1]) - times(busy[:, 0])),
        "readAfter": np.where(read < 0, 0, times(read) - start),
        "group": np.where(group < 0, 0, group - int(group.max(initial=0)) - 1),
    }


def _type(values: np.ndarray) -> type:
    """Return the narrowest type that holds all values."""
    least, most = (int(values.min()), int(values.max())) if values.size else (0, 0)
    for one in TYPES:
        if np.iinfo(one).min <= least and most <= np.iinfo(one).max:
            return one
    return np.float64
