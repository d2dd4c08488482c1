"""The GPU that a machine represents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """The GPU that is emulated, as far as a program can see it.

    `launch_control`: whether a cluster that requests the next one gets it: "grant", "decline", "random" (by the seed),
    or "schedule": random under schedule "random", otherwise always.
    """

    name: str = "H200"
    sms: int = 132
    warps_per_sm: int = 64
    max_ctas_per_sm: int = 32
    shared_per_sm: int = 233472
    launch_control: str = "schedule"
