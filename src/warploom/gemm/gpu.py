"""The GPU that a kernel is chosen for: its name, its target, its multiprocessors and its driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..runtime.machine import H200


@dataclass(frozen=True)
class Gpu:
    """A GPU as the choice of a kernel sees it.

    Attributes:
        name: as the driver reports it.
        arch: target of its own instructions, "sm_90a".
        sms: multiprocessors.
        driver: version of the CUDA driver; "" where there is none.
    """

    name: str
    arch: str
    sms: int
    driver: str = ""

    @property
    def number(self) -> int:
        """Compute capability times ten."""
        return int(re.sub(r"\D", "", self.arch))

    @property
    def slug(self) -> str:
        """Its name as part of a file's name."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


EMULATED = Gpu("NVIDIA H200", H200().arch, H200().sms)
"""The GPU whose choice the emulator runs."""


def gpu_of(index: int) -> Gpu:
    """The GPU of that number. Raises NoGpuError."""
    from ..driver import library

    loaded = library.load()
    device = loaded.device(index)
    return Gpu(device.name, device.arch, device.sms, str(loaded.version))
