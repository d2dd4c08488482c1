"""The result of a prediction, as data and as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..asm.demangle import readable
from .replay import Replay
from .timeline import Timeline


@dataclass
class Prediction:
    """The result of `predict`.

    Attributes:
        kernel; us: microseconds of one launch among many; clocks: SM clocks; clock_mhz; watts; tflops.
        bound: the nearest roof, or "latency" if none is near.
        roofs: share of the time that each unit is busy: "tensor", "issue", "memory pipe", "L2", "DRAM", "atomics"
            (contended lines), and the pipes "fma", "alu", "half", "mufu", "fp64" of a quarter.
        waits: by role, the share of a warp's time that it waits, by reason.
        residents: resident CTAs per SM; turns: clusters that a place runs.
        counted: which instructions were counted: "machine code", or "PTX" and why there is no machine code.
        note: what the prediction may lack, or how the power cap fails to hold; "" if nothing is known.
        timeline: the replayed events, if requested.
    """

    kernel: str
    us: float
    clocks: float
    clock_mhz: float
    watts: float
    tflops: float
    bound: str
    roofs: dict[str, float]
    waits: dict[str, dict[str, float]]
    residents: int
    turns: int
    l2_bytes: float = 0.0
    dram_bytes: float = 0.0
    instructions: float = 0.0
    counted: str = "machine code"
    note: str = ""
    timeline: Timeline | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, object]:
        """Return plain values, without the timeline."""
        return {
            "kernel": self.kernel, "us": round(self.us, 3), "clocks": round(self.clocks),
            "clock_mhz": round(self.clock_mhz, 1), "watts": round(self.watts, 1), "tflops": round(self.tflops, 2),
            "bound": self.bound, "roofs": {name: round(share, 3) for name, share in self.roofs.items()},
            "waits": {
                role: {what: round(share, 3) for what, share in found.items()} for role, found in self.waits.items()
            },
            "residents": self.residents, "turns": self.turns,
            "l2_bytes": round(self.l2_bytes), "dram_bytes": round(self.dram_bytes),
            "counted": self.counted, "note": self.note,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [
            f"{readable(self.kernel)}: {self.headline()}",
            "  busy    " + ", ".join(f"{name} {share:.0%}" for name, share in largest(self.roofs) if share >= 0.005),
        ]
        for role, found in alike(self.waits).items():
            shown = ", ".join(f"{readable(what)} {share:.0%}" for what, share in largest(found) if share >= 0.005)
            if shown:
                lines.append(f"  waits   {role}: {shown}")
        if not self.counted.startswith("machine"):
            lines.append(f"  note    PTX instructions were counted: {self.counted.removeprefix('PTX: ')}")
        if self.note:
            lines.append(f"  note    {self.note}")
        return "\n".join(lines)

    def headline(self) -> str:
        """Time, rate, clock, power and bound in one line."""
        return (
            f"{self.us:.1f} us predicted, {self._rate()} at {self.clock_mhz:.0f} MHz and {self.watts:.0f} W; "
            f"bound by {self.bound}"
        )

    def _rate(self) -> str:
        """The rate of matrix products or, if there are none, of DRAM."""
        return f"{self.tflops:.1f} TFLOP/s" if self.tflops else f"{self.dram_bytes / self.us / 1e6:.2f} TB/s of DRAM"


def largest(shares: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(shares.items(), key=lambda item: -item[1])


def alike(waits: Mapping[str, dict[str, float]], within: float = 0.01) -> dict[str, dict[str, float]]:
    """Combine warps without a role that follow each other and wait alike, with the shares of the first.

    Roles come first, then the other warps by number. within: the largest difference of a share.
    """
    found: dict[str, dict[str, float]] = {}
    first, last, shares = -1, -1, dict[str, float]()
    for role, of_role in sorted(waits.items(), key=lambda item: _number(item[0])):
        warp = _number(role)
        differences = (abs(of_role.get(what, 0.0) - shares.get(what, 0.0)) for what in {*of_role, *shares})
        if warp > 0 and last == warp - 1 and all(difference <= within for difference in differences):
            found.popitem()
            found[f"warps {first}-{warp}"] = shares
        else:
            first, shares = warp, of_role
            found[role] = shares
        last = warp
    return found


def _number(role: str) -> int:
    """The number of "warp 3"; -1 for a role with a name."""
    number = role.removeprefix("warp ")
    return int(number) if number.isdigit() else -1


def waits(replay: Replay) -> dict[str, dict[str, float]]:
    """Return, by role, the share of a warp's time that it waits, by reason."""
    found: dict[str, dict[str, float]] = {}
    for (role, what), clocks in replay.stalls.items():
        whole = replay.lives.get(role, 0.0)
        if whole:
            found.setdefault(role, {})[what] = clocks / whole
    return found
