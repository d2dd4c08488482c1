"""A traced launch in Chrome's trace format, which ui.perfetto.dev opens.

Each CTA is a process and its warps are threads. Overlapping events (copies, stores, products, phases) are asynchronous
slices, and a flow leads from the event that ended a wait to the wait. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .timeline import ARRIVE, BARRIER, COPY, MATRIX, RUN, STORE, WAIT, Event
from .tracing import Traced

ENGINES = {COPY: "copies in flight", STORE: "stores in flight", MATRIX: "products in flight", BARRIER: "barrier phases"}


def document(traced: Traced) -> dict[str, Any]:
    """Return the whole file as plain values."""
    return {
        "displayTimeUnit": "ns",
        "otherData": {"kernel": traced.kernel, "clock_mhz": traced.timeline.clock_mhz, "error": traced.error},
        "traceEvents": [*_names(traced), *_events(traced), *_pins(traced)],
    }


def _names(traced: Traced) -> Iterator[dict[str, Any]]:
    timeline = traced.timeline
    for cta, sm in sorted(timeline.sm.items()):
        name = f"{traced.kernel}, CTA {cta} on SM {sm}"
        yield {"ph": "M", "name": "process_name", "pid": cta, "args": {"name": name}}
    for (cta, warp), events in sorted(timeline.rows().items()):
        role = events[0].role
        name = f"{role}, warp {warp}" if role else f"warp {warp}"
        yield {"ph": "M", "name": "thread_name", "pid": cta, "tid": warp, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": cta, "tid": warp, "args": {"sort_index": warp}}


def _events(traced: Traced) -> Iterator[dict[str, Any]]:
    timeline = traced.timeline
    microseconds = timeline.microseconds
    for event in timeline.events:
        common = {"pid": event.cta, "name": _name(event), "cat": event.kind, "args": _said(event)}
        start, end = microseconds(event.start), microseconds(event.end)
        if event.kind in (RUN, WAIT):
            yield {"ph": "X", "tid": event.warp, "ts": start, "dur": end - start, **common}
        elif event.kind == ARRIVE:
            yield {"ph": "i", "s": "t", "tid": event.warp, "ts": start, **common}
        else:
            track = {**common, "cat": ENGINES[event.kind], "id": event.number}
            yield {"ph": "b", "ts": start, **track}
            yield {"ph": "e", "ts": end, **track}
        if event.kind == WAIT and event.cause >= 0:
            cause = timeline.events[event.cause]
            flow = {"name": "ends", "cat": "flow", "id": event.number}
            yield {"ph": "s", "pid": cause.cta, "tid": max(cause.warp, 0), "ts": microseconds(cause.end), **flow}
            yield {"ph": "f", "bp": "e", "pid": event.cta, "tid": event.warp, "ts": end, **flow}


def _pins(traced: Traced) -> Iterator[dict[str, Any]]:
    for pin in traced.pins:
        yield {
            "ph": "i", "s": "g", "ts": traced.timeline.microseconds(pin.clocks), "pid": max(pin.cta, 0),
            "tid": max(pin.warp, 0), "name": f"{pin.severity}[{pin.rule}] {pin.title}", "cat": "finding",
            "args": {"text": pin.text},
        }  # fmt: skip


def _name(event: Event) -> str:
    place = event.barrier + (f"[{event.stage}]" if event.stage >= 0 else "")
    if event.kind == BARRIER:
        return f"{place}, phase {event.phase}"
    return f"{event.what} for {place}" if event.kind == COPY and place else event.what


def _said(event: Event) -> dict[str, Any]:
    found = {
        "line": f"{event.file}:{event.line}" if event.file else "", "ptx line": event.ptx_line, "opcode": event.opcode,
        "bytes": event.bytes, "flops": event.flops, "instructions": event.instructions,
    }  # fmt: skip
    return {name: value for name, value in found.items() if value}
