"""The GPU that a kernel is chosen for: its name, its target, its multiprocessors and its driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import ArgumentError
from ...runtime.machine import H200

AMPERE, HOPPER = 80, 90
"""The first compute capability of each, times ten. Kernels of sm_90a run on no later GPU."""


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

    def runs(self, arch: str) -> bool:
        """Whether it runs kernels of a target: of "sm_90a" only GPUs of that generation, of "sm_80" later ones too."""
        number = int(re.sub(r"\D", "", arch))
        return self.number // 10 == number // 10 if arch.endswith("a") else self.number >= number

    @property
    def slug(self) -> str:
        """Its name as part of a file's name."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def check_gpu(gpu: Gpu, called: str, oldest: int = AMPERE) -> None:
    """Raise ArgumentError where the library has no kernel for a GPU.

    called: what the user called; oldest: the first compute capability, times ten, that it runs on.
    """
    if gpu.number < oldest:
        raise ArgumentError(
            f"{called} runs on GPUs of compute capability {oldest / 10} ({'Ampere' if oldest == AMPERE else 'Hopper'}) "
            "and later",
            expected=f"sm_{oldest} or later", got=f"{gpu.name}, {gpu.arch}", hint="the emulator runs it on CPU tensors",
        )  # fmt: skip
    if gpu.number >= HOPPER + 10:
        raise ArgumentError(
            f"{called} has no kernel for this GPU yet: its kernels are for sm_90a, which no later GPU runs",
            expected=f"sm_{oldest} to sm_90", got=f"{gpu.name}, {gpu.arch}",
            hint="the emulator runs it on CPU tensors; torch.matmul runs on this GPU",
        )  # fmt: skip


EMULATED = Gpu("NVIDIA H200", H200().arch, H200().sms)
"""The GPU whose choice the emulator runs."""


def gpu_of(index: int) -> Gpu:
    """The GPU of that number. Raises NoGpuError."""
    from ...driver import library

    loaded = library.load()
    device = loaded.device(index)
    return Gpu(device.name, device.arch, device.sms, str(loaded.version))
