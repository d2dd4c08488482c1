"""The hardware as the model knows it: numbers, and the measurement that each comes from.

A constant names its source: "microbenchmarks.json: rate.lds32.w8 clocks", "published: …", "derived: …" or "fitted: …".
A test reads the measurements again, and holds the fitted ones to a few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Constant:
    """A value in the unit of its name, and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True)
class Hardware:
    """One GPU.

    Attributes:
        name, sms: multiprocessors; the others: limits of each.
        latency: clocks until a dependent instruction may start, by name.
        rate: clocks for which one warp instruction occupies its pipe of a quarter, by pipe.
        wgmma: clocks of the tensor core by bytes-of-k-32 product: see `tensor.mma_clocks`.
        values: all other constants, by name.
    """

    name: str
    sms: int
    shared_per_sm: int
    registers_per_sm: int
    warps_per_sm: int
    ctas_per_sm: int
    latency: Mapping[str, Constant] = field(default_factory=dict)
    rate: Mapping[str, Constant] = field(default_factory=dict)
    values: Mapping[str, Constant] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.values[name].value

    def constants(self) -> dict[str, Constant]:
        """All of them, by their whole names."""
        found = {}
        for group in (one.name for one in fields(self) if one.name in ("latency", "rate", "values")):
            found.update({f"{group}.{name}": constant for name, constant in getattr(self, group).items()})
        return found
