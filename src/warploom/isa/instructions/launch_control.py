"""Rows of cluster launch control: a running cluster takes over one that has not started.

PTX ISA 9.7.13.17 and .18.

`try_cancel` requests a cluster of the grid; the response, 16 bytes, arrives in shared memory and on an mbarrier.
`query_cancel` reads the response: whether a cluster was cancelled, and its first CTA.
"""

from __future__ import annotations

from typing import Any

from ..effects import ASYNC, RUN, WRITES, Access, Allocates, Bytes, Choice, Starts
from .schema import Form

_HERE: dict[str, Any] = {"arch": "sm_100", "ptx": (8, 6)}
_EVERYWHERE = "multicast::cluster::all"
_ANSWER = Access(
    WRITES, "dst", "shared", ASYNC, "response", at=RUN, rank=Choice(_EVERYWHERE, "own", {_EVERYWHERE: "all"})
)

FORMS: tuple[Form, ...] = (
    Form(
        "clusterlaunchcontrol.try_cancel",
        f"clusterlaunchcontrol.try_cancel.async{{.space}}.mbarrier::complete_tx::bytes{{.{_EVERYWHERE}}}.b128",
        "[dst], [mbar]", {"space": "shared::cta"}, narrow=True, **_HERE,
        needs={_EVERYWHERE: ("sm_100f sm_101f sm_110f sm_120f", (8, 6))}, section="9.7.13.17",
        noun="request for a cluster",
        effects=(Allocates("clusters", 1, blocks=False), Starts("launch", (Bytes("mbar"),)), _ANSWER),
    ),
    Form(
        "clusterlaunchcontrol.is_canceled", "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128",
        ">p:pred, response:b128!", **_HERE, section="9.7.13.18",
    ),
    Form(
        "clusterlaunchcontrol.first_ctaid", "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128",
        ">d:b32*4, response:b128!", **_HERE, section="9.7.13.18",
    ),
    Form(
        "clusterlaunchcontrol.first_ctaid_of", "clusterlaunchcontrol.query_cancel.which.b32.b128",
        ">d:b32, response:b128!", {"which": "get_first_ctaid::x get_first_ctaid::y get_first_ctaid::z"}, **_HERE,
        section="9.7.13.18",
    ),
)  # fmt: skip
