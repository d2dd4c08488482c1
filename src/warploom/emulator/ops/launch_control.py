"""Cluster launch control: a cluster requests one that has not started, to do its work. PTX ISA 9.7.13.17, 9.7.13.18.

The response is 16 bytes; their layout is ours. A request may be declined while clusters are left. These then start on
their own, and the requesting CTA must finish.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from ...errors import InvalidOperandError
from ...isa import dtypes
from ..engines.boxes import POISON
from ..engines.bulk import Bytes, shared_bytes, submit
from ..machine import mbarrier
from ..machine import shared_address as shared
from ..machine.frame import Frame, Issuer
from ..machine.slots import Slot
from ..machine.units import LAUNCH
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()
RESPONSE = 16
_GRANTED, _DECLINED = 0x47524E54, 0


@dataclass(eq=False)
class DeclinedRequests:
    """Records the declined request of a CTA, if any; it must not request again after that."""

    declined: Issuer | None = None

    def digest(self) -> Hashable:
        return self.declined is not None


ANSWERS = Slot("launch control", lambda cta: DeclinedRequests())


@HANDLERS.add("clusterlaunchcontrol.try_cancel")
def try_cancel(d: Decode) -> Step:
    address, barrier = d.address("dst", "shared"), d.address("mbar", "shared")
    everywhere = bool(d.modifiers.get("multicast::cluster::all"))

    def step(frame: Frame) -> None:
        targets, barriers, cta = address.compute(frame), barrier.compute(frame), frame.cta
        for lane in frame.active_lanes.tolist():
            before = ANSWERS.of(cta).declined
            if before is not None:
                frame.error(
                    InvalidOperandError,
                    "a CTA requests a cluster after it has seen a request declined",
                    lane,
                    got=f"seen by {before.short()}",
                    consequence="undefined behaviour (PTX ISA 9.7.13.17)",
                )
            _, offset = shared.place(frame, "shared", int(targets[lane]), lane, "the response")
            _, at = mbarrier.locate(frame, "shared", int(barriers[lane]), lane)
            receivers = cta.cluster.ctas if everywhere else [cta]
            by, answer = Issuer.of(frame, lane), np.zeros(4, np.uint32)
            asked: list[bool] = []

            def read(part: int, parts: int, answer: np.ndarray = answer, asked: list[bool] = asked) -> None:
                if not asked:
                    asked.append(True)
                    answer[:] = _answer(frame)

            for receiver in receivers:
                shared.check_range(frame, receiver, offset, RESPONSE, RESPONSE, lane, "the response")
                mbarrier.find(by, receiver, at)
                into = shared_bytes(receiver, offset, RESPONSE)
                into.part(0, 1)[...] = POISON

                def write(part: int, parts: int, into: Bytes = into, answer: np.ndarray = answer) -> None:
                    if part == 0:
                        into.part(0, 1)[...] = answer.view(np.uint8)

                what = f"the response to a request for a cluster, into {shared.name(receiver, offset)}"
                submit(LAUNCH, by, what, read, write, RESPONSE, (receiver, at), into)

    return step


def _answer(frame: Frame) -> list[int]:
    """Take the next cluster that has not started, if there is one and the policy grants it."""
    machine, how = frame.machine, frame.machine.model.launch_control
    chance = how == "random" or (how == "schedule" and machine.engine.policy == "random")
    declines = how == "decline" or (chance and machine.engine.random.random() < 0.25)
    first = None if declines else machine.cancel_cluster(frame.cta.cluster.device)
    if first is None:
        return [*_meaningless(frame), _DECLINED]
    machine.progress()
    return [*first, _GRANTED]


def _meaningless(frame: Frame) -> tuple[int, ...]:
    """The indices in a declined response, which mean nothing: none at all under lazy, those of the requesting cluster
    itself under other schedules. A kernel that uses them without asking goes wrong in one way or another."""
    if frame.machine.engine.policy == "lazy":
        return (0xFFFFFFFF,) * 3
    return frame.cta.cluster.ctas[0].index


def _words(frame: Frame, slot: int) -> np.ndarray:
    """The response of each lane as four words, (lanes, 4)."""
    raw = np.broadcast_to(frame.values[slot], (frame.lanes,))
    return np.ascontiguousarray(raw).view(np.uint32).reshape(frame.lanes, 4)


@HANDLERS.add("clusterlaunchcontrol.is_canceled")
def is_canceled(d: Decode) -> Step:
    response, out = d.source("response"), d.destination("p", dtypes.pred)

    def step(frame: Frame) -> None:
        granted = _words(frame, response)[:, 3] == _GRANTED
        frame.write(out, granted)
        refused = frame.active & ~granted
        if refused.any():
            answers = ANSWERS.of(frame.cta)
            answers.declined = answers.declined or Issuer.of(frame, int(np.flatnonzero(refused)[0]))

    return step


@HANDLERS.add("clusterlaunchcontrol.first_ctaid")
def first_ctaid(d: Decode) -> Step:
    response, out = d.source("response"), d.registers("d")

    def step(frame: Frame) -> None:
        out.write(frame, np.ascontiguousarray(_words(frame, response).T))

    return step


@HANDLERS.add("clusterlaunchcontrol.first_ctaid_of")
def first_ctaid_of(d: Decode) -> Step:
    response, out = d.source("response"), d.destination("d")
    axis = "xyz".index(d.modifier("which")[-1])
    return lambda frame: frame.write(out, _words(frame, response)[:, axis].copy())
