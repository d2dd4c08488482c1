"""SM clock and power while something runs, read from nvidia-smi (NVML) every 50 ms and labelled by who ran.

NVML's clock reads 8 to 9 % above what a kernel full of tensor work counts itself (docs/measured-facts.md); `lab.clock`
reads it inside a kernel.
"""

from __future__ import annotations

import statistics
import subprocess
import threading
from dataclasses import dataclass, field

PERIOD_MS = 50
_FIELDS = ("clocks.sm,power.draw.instant", "clocks.sm,power.draw")
"""What is asked for; older drivers know the second only, which is a mean over a second."""


@dataclass
class Readings:
    """Clock in MHz and power in W."""

    clock: list[float] = field(default_factory=list)
    power: list[float] = field(default_factory=list)

    @property
    def watts(self) -> float | None:
        """Median power; None where nothing was read."""
        return statistics.median(self.power) if self.power else None

    @property
    def megahertz(self) -> float | None:
        """Median clock; None where nothing was read."""
        return statistics.median(self.clock) if self.clock else None


class _Samples:
    """A list of readings that renders as an evidence header has it."""

    def __init__(self) -> None:
        self.samples: list[float] = []

    def as_dict(self) -> dict[str, float]:
        values = self.samples
        return {
            "median": round(statistics.median(values), 1),
            "min": round(min(values), 1),
            "max": round(max(values), 1),
            "samples": len(values),
        }


class PowerMeter:
    """Reads clock and power while a `with` block runs. Empty without nvidia-smi.

    Attributes:
        label: readings are also kept under it while it is set.
        clock, power: all readings.
    """

    def __init__(self, device: str = "") -> None:
        """device: as `nvidia-smi -i` takes it (a UUID); "" for the first GPU."""
        self._device = device or "0"
        self.label: str | None = None
        self.clock, self.power = _Samples(), _Samples()
        self.labelled: dict[str, Readings] = {}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> PowerMeter:
        query = self._query()
        if query is None:
            return self
        self._process = subprocess.Popen(
            [*query, "-lms", str(PERIOD_MS)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def _query(self) -> list[str] | None:
        """The command that answers here; None where none does."""
        for device in dict.fromkeys((self._device, "0")):
            for fields in _FIELDS:
                query = ["nvidia-smi", "-i", device, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
                try:
                    if not subprocess.run(query, capture_output=True, check=False, timeout=20).returncode:
                        return query
                except (OSError, subprocess.TimeoutExpired):
                    return None
        return None

    def _read(self) -> None:
        for line in self._process.stdout:  # type: ignore[union-attr]
            self.take(line)

    def take(self, line: str) -> None:
        """One line of nvidia-smi: clock, power."""
        parts = line.split(",")
        try:
            clock, power = float(parts[0]), float(parts[1])
        except (ValueError, IndexError):
            return
        self.clock.samples.append(clock)
        self.power.samples.append(power)
        if (label := self.label) is not None:
            readings = self.labelled.setdefault(label, Readings())
            readings.clock.append(clock)
            readings.power.append(power)

    def header(self) -> dict[str, object]:
        """The two lines of an evidence header."""
        return {
            "sm_clock_mhz": self.clock.as_dict() if self.clock.samples else {},
            "power_w": self.power.as_dict() if self.power.samples else {},
        }

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
            self._thread.join(timeout=1)
