"""Rows of a CTA's interaction with its cluster and its grid: the cluster barrier, remote addresses, the register pool,
programmatic dependent launch.

PTX ISA 9.7.13.3 (barrier.cluster), 9.7.9.23 (mapa), 9.7.9.24 (getctarank), 9.7.19.5 (setmaxnreg), 9.7.13.13
(griddepcontrol).
"""

from __future__ import annotations

from ..effects import Allocates, Choice, Frees, Operand, Order, Permits, Synchronises, Waits
from .schema import Form

_SEM = {"release": ("sm_90", (8, 0)), "relaxed": ("sm_90", (8, 0)), "acquire": ("sm_90", (8, 0))}
_WIDTHS = {"type": "u32 u64 s32 s64"}

FORMS: tuple[Form, ...] = (
    Form(
        "cluster.arrive", "barrier.cluster.arrive{.sem}{.aligned}", "", {"sem": "release relaxed"},
        arch="sm_90", ptx=(7, 8), needs=_SEM, section="9.7.13.3",
        effects=(Synchronises("cluster", part="arrive", order=Order(Choice("sem", "release"), "cluster")),),
    ),
    Form(
        "cluster.wait", "barrier.cluster.wait{.acquire}{.aligned}", "",
        arch="sm_90", ptx=(7, 8), needs=_SEM, section="9.7.13.3",
        effects=(Synchronises("cluster", part="wait", order=Order("acquire", "cluster")),),
    ),
    Form(
        "cluster.mapa", "mapa{.shared::cluster}.type", ">d:type, a:type&shared, b:u32", _WIDTHS,
        arch="sm_90", ptx=(7, 8), section="9.7.9.23", example="mapa.shared::cluster.u32 %r0, %r1, %r2;",
    ),
    Form(
        "cluster.getctarank", "getctarank{.shared::cluster}.type", ">d:u32, a:type&shared", _WIDTHS,
        arch="sm_90", ptx=(7, 8), section="9.7.9.24", example="getctarank.shared::cluster.u32 %r0, %r1;",
    ),
    Form(
        "cluster.setmaxnreg", "setmaxnreg.action.sync.aligned.u32", "count:imm", {"action": "inc dec"},
        arch="sm_90a sm_100f sm_101f sm_110f sm_120f", ptx=(8, 0), section="9.7.19.5",
        example="setmaxnreg.inc.sync.aligned.u32 232;",
        converged="warp",
        effects=(
            Allocates("registers", Operand("count"), when=Choice("action", means={"inc": True, "dec": False})),
            Frees("registers", Operand("count"), when=Choice("action", means={"inc": False, "dec": True})),
        ),
    ),
    Form(
        "cluster.griddepcontrol", "griddepcontrol.action", "", {"action": "launch_dependents wait"},
        arch="sm_90", ptx=(7, 8), section="9.7.13.13",
        effects=(
            Waits("grid", when=Choice("action", means={"wait": True, "launch_dependents": False})),
            Permits("next grid", when=Choice("action", means={"wait": False, "launch_dependents": True})),
        ),
    ),
)  # fmt: skip
