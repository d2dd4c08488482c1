"""SM clock and power of a GPU while something runs, read from NVML every 50 ms and labelled by what ran.

NVML's clock reads 8 to 9 % above what a kernel full of tensor work measures itself (docs/measured-facts.md); `clock`
reads it inside a kernel. NVML comes from the package nvidia-ml-py; without it, or without a GPU, nothing is read.
"""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

PERIOD_S = 0.05


@dataclass
class Readings:
    """Clock in MHz and power in W."""

    clock: list[float] = field(default_factory=list)
    power: list[float] = field(default_factory=list)

    @property
    def watts(self) -> float | None:
        """Median power; None if nothing was read."""
        return statistics.median(self.power) if self.power else None

    @property
    def megahertz(self) -> float | None:
        """Median clock; None if nothing was read."""
        return statistics.median(self.clock) if self.clock else None


class PowerMeter:
    """Reads clock and power while a `with` block runs.

    Attributes:
        label: while it is set, readings are also kept under it.
        every: all readings.
        labelled: readings by label.
    """

    def __init__(self, uuid: str = "") -> None:
        """uuid: of the GPU, "GPU-…"; the first GPU without one."""
        self._uuid = uuid
        self.label: str | None = None
        self.every = Readings()
        self.labelled: dict[str, Readings] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> PowerMeter:
        nvml = load()
        if nvml is not None:
            self._thread = threading.Thread(target=self._read, args=(nvml,), name="power", daemon=True)
            self._thread.start()
        return self

    def _read(self, nvml: Any) -> None:
        gpu = self._gpu(nvml)
        while not self._stop.wait(PERIOD_S):
            try:
                self.take(nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM), watts_of(nvml, gpu))
            except nvml.NVMLError:
                continue

    def _gpu(self, nvml: Any) -> Any:
        try:
            return nvml.nvmlDeviceGetHandleByUUID(self._uuid)
        except nvml.NVMLError:
            return nvml.nvmlDeviceGetHandleByIndex(0)

    def take(self, megahertz: float, watts: float) -> None:
        """Keep one reading."""
        readings: Iterable[Readings] = [self.every]
        if (label := self.label) is not None:
            readings = [self.every, self.labelled.setdefault(label, Readings())]
        for each in readings:
            each.clock.append(megahertz)
            each.power.append(watts)

    def header(self) -> dict[str, object]:
        """The two entries of an evidence header; empty if nothing was read."""
        return {"sm_clock_mhz": _spread(self.every.clock), "power_w": _spread(self.every.power)}

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=1)


def watts_of(nvml: Any, gpu: Any) -> float:
    """Current power; drivers without that field report the mean over a second."""
    (field_value,) = nvml.nvmlDeviceGetFieldValues(gpu, [nvml.NVML_FI_DEV_POWER_INSTANT])
    milliwatts = field_value.value.uiVal if field_value.nvmlReturn == nvml.NVML_SUCCESS else 0
    return (milliwatts or nvml.nvmlDeviceGetPowerUsage(gpu)) / 1e3


def load() -> Any:
    """The module pynvml, initialised; None if it is missing or finds no driver."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def driver_version() -> str:
    """Version of the kernel driver; "" if NVML is missing."""
    nvml = load()
    return str(nvml.nvmlSystemGetDriverVersion()) if nvml is not None else ""


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    middle = statistics.median(values)
    return {
        "median": round(middle, 1), "min": round(min(values), 1), "max": round(max(values), 1), "samples": len(values),
    }  # fmt: skip
