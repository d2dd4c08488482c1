"""The hardware constants of the model, each with its source.

A source is "microbenchmarks.json: rate.lds32.w8 clocks", "published: …", "derived: …" or "fitted: …".
A test recomputes them from the measurements and limits the number of fitted ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields


@dataclass(frozen=True)
class Constant:
    """A value in the unit that its name says, with its source."""

    value: float
    source: str


@dataclass(frozen=True)
class Hardware:
    """One GPU.

    Attributes:
        name, sms: number of SMs; the other integers: limits per SM.
        latency: clocks until a dependent instruction may start, by name.
        rate: clocks for which one warp instruction occupies its pipe in an SM quarter, by pipe.
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
        """All constants, by qualified name."""
        found = {}
        for group in (one.name for one in fields(self) if one.name in ("latency", "rate", "values")):
            found.update({f"{group}.{name}": constant for name, constant in getattr(self, group).items()})
        return found
