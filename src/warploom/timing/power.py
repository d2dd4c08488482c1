"""The clock that power allows: the SM clock drops until the power of its units fits under the cap.

Power is a base plus the energy of the work over its time. The energy of units on the SM's voltage falls with the clock,
by an exponent; L2 and DRAM have their own clocks. Two ceilings hold without the cap: the nominal clock, and a lower one
while the tensor core works.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .constants import Hardware

LOWEST_GHZ = 0.7
STEPS = 24
MOST_REPLAYS = 4
WATTS = 1.0
"""Powers that close are the same."""


@dataclass(frozen=True)
class Work:
    """The work of a launch, summed over all SMs.

    Attributes:
        warpgroup_flops, narrow_flops: FLOP of warpgroup products, in 16-bit and wider types and in 8-bit types;
            mma_flops, f64_flops: FLOP of single warps' products, and separately in f64.
        instructions: warp instructions; transcendental: of these, MUFU's; shared: bytes that loads and stores move
            in shared memory.
        read: bytes that L2 reads for SMs; received: bytes that SMs receive, more than `read` by copies to several SMs;
            dram: bytes from DRAM; stored: bytes to DRAM; sent, added: further bytes that L2 stores, and that it adds to
            what it has.
        f16: share of the warpgroups' products whose operands are f16, whose significands are three bits longer than
            bf16's.
        sparse: share of the warpgroups' products whose A is sparse.
        zeros: operands are zeros, so that nothing toggles.
    """

    warpgroup_flops: float = 0.0
    narrow_flops: float = 0.0
    mma_flops: float = 0.0
    f64_flops: float = 0.0
    instructions: float = 0.0
    transcendental: float = 0.0
    shared: float = 0.0
    read: float = 0.0
    received: float = 0.0
    dram: float = 0.0
    stored: float = 0.0
    sent: float = 0.0
    added: float = 0.0
    f16: float = 0.0
    sparse: float = 0.0
    zeros: bool = False


def joules(work: Work, hardware: Hardware, ghz: float) -> float:
    """Return the energy of the work at a clock, without base power."""
    scale = (ghz / hardware["tensor_ghz"]) ** hardware["voltage_exponent"]
    toggles = hardware["mma_zeros_pj_per_flop"] if work.zeros else hardware["mma_pj_per_flop"]
    tensor = toggles * (work.warpgroup_flops + hardware["narrow_energy_ratio"] * work.narrow_flops)
    tensor *= 1.0 + (hardware["f16_energy_ratio"] - 1.0) * work.f16
    tensor *= 1.0 + (hardware["sparse_energy_ratio"] - 1.0) * work.sparse
    tensor += hardware["mma_sync_pj_per_flop"] * work.mma_flops + hardware["mma_f64_pj_per_flop"] * work.f64_flops
    issued = hardware["instruction_nj"] * (work.instructions - work.transcendental)
    issued = (issued + hardware["mufu_nj"] * work.transcendental) * 1e-9 * scale
    issued += hardware["shared_watts_per_tb"] * work.shared * 1e-12 * scale
    moved = hardware["read_watts_per_tb"] * work.read + hardware["received_watts_per_tb"] * work.received
    moved += hardware["dram_watts_per_tb"] * work.dram + hardware["stored_watts_per_tb"] * work.stored
    moved += hardware["sent_watts_per_tb"] * work.sent + hardware["added_watts_per_tb"] * work.added
    return tensor * 1e-12 * scale + issued + moved * 1e-12 * (hardware["moved_zeros_ratio"] if work.zeros else 1.0)


def watts(work: Work, hardware: Hardware, ghz: float, seconds: float) -> float:
    """Return the mean power in watts if the work takes `seconds`."""
    return hardware["base_watts"] + joules(work, hardware, ghz) / seconds


def ceiling(work: Work, hardware: Hardware, activity: float) -> float:
    """Return the highest clock without the cap; activity: share of the time that the chip's tensor cores are busy.

    f64 products leave it at the nominal clock (power.mma_f64).
    """
    if not work.warpgroup_flops + work.narrow_flops + work.mma_flops:
        return hardware["nominal_ghz"]
    full = hardware["tensor_full_ghz"]
    return full + (hardware["tensor_ghz"] - full) * (1.0 - min(1.0, activity))


def settle(
    work: Work, hardware: Hardware, seconds: Callable[[float], float], activity: float = 0.0, cap: float = 0.0
) -> tuple[float, float]:
    """Return (clock in GHz, watts) for the highest clock under the cap. seconds: time of the work at a clock in GHz."""

    def drawn(ghz: float) -> float:
        return watts(work, hardware, ghz, seconds(ghz))

    clock = highest_under(drawn, ceiling(work, hardware, activity), cap or hardware["cap_watts"])
    return clock, drawn(clock)


def highest_under(drawn: Callable[[float], float], high: float, most: float) -> float:
    """Return the highest clock up to `high`, in GHz, that draws at most `most` watts."""
    if drawn(high) <= most:
        return high
    low = LOWEST_GHZ
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if drawn(middle) > most else (middle, high)
    return low


def above_cap(power: float, cap: float, ghz: float, fixed: bool) -> str:
    """Return a note if the power is above the cap, in watts; "" otherwise. fixed: the clock was given."""
    if power <= cap + WATTS:
        return ""
    if fixed:
        return f"this clock needs more than the power cap of {cap:.0f} W: the GPU would lower it"
    return f"the lowest clock of the model, {ghz * 1e3:.0f} MHz, still needs more than the power cap of {cap:.0f} W"


class Replayed(Protocol):
    """A launch whose time is known at some clocks."""

    def knows(self, ghz: float) -> bool: ...
    def replay_at(self, ghz: float) -> None: ...


def found_clock(launches: Sequence[Replayed], settled: Callable[[], float]) -> float:
    """Return the clock in GHz at which launches settle, and replay them there.

    What binds a launch may change between the clocks that are known. So it is replayed where it settled, until it
    settles near a known clock.
    """
    ghz = settled()
    for _ in range(MOST_REPLAYS):
        if all(one.knows(ghz) for one in launches):
            break
        for one in launches:
            one.replay_at(ghz)
        ghz = settled()
    return ghz
