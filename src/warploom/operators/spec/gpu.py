"""The GPU that a kernel is chosen for: its name, its target, its multiprocessors and its driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...errors import ArgumentError
from ...runtime.machine import A100, B200, H200, Machine
from ...settings import config as settings

AMPERE, HOPPER, BLACKWELL = 80, 90, 100
"""The first compute capability of each, times ten. Kernels of sm_90a and sm_100a do not run on later GPUs."""


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU that the choice of a kernel depends on.

    Attributes:
        name: as the driver reports it.
        arch: the target of its own instructions, "sm_90a".
        sms: multiprocessors.
        driver: version of the CUDA driver; "" if there is none.
        memory_gbps: memory bandwidth in 10^9 bytes per second, from clock and width; 0 if unknown.
        clock_mhz: highest clock of its multiprocessors; 0 if unknown.
    """

    name: str
    arch: str
    sms: int
    driver: str = ""
    memory_gbps: int = 0
    clock_mhz: int = 0

    @property
    def number(self) -> int:
        """Compute capability times ten."""
        return int(re.sub(r"\D", "", self.arch))

    def runs(self, arch: str) -> bool:
        """True if it runs kernels of a target: for "sm_90a" only that exact capability, for "sm_80" later ones too."""
        number = int(re.sub(r"\D", "", arch))
        return self.number == number if arch.endswith("a") else self.number >= number

    @property
    def slug(self) -> str:
        """Its name as part of a file's name."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")


def check_gpu(gpu: Gpu, called: str, oldest: int = AMPERE, newest: int = HOPPER) -> None:
    """Raise ArgumentError if the library has no kernel for a GPU.

    called: the function that the user called; oldest, newest: the compute capabilities, times ten, that it supports.
    """
    if gpu.number < oldest:
        raise ArgumentError(
            f"{called} runs on GPUs of compute capability {oldest / 10} ({'Ampere' if oldest == AMPERE else 'Hopper'}) "
            "and later",
            expected=f"sm_{oldest} or later", got=f"{gpu.name}, {gpu.arch}", hint="the emulator runs it on CPU tensors",
        )  # fmt: skip
    if gpu.number > newest:
        other = "torch.matmul" if "matmul" in called else "torch"
        raise ArgumentError(
            f"{called} has no kernel for this GPU yet: its kernels are for sm_{newest}a, which no later GPU runs",
            expected=f"sm_{newest}" if oldest == newest else f"sm_{oldest} to sm_{newest}",
            got=f"{gpu.name}, {gpu.arch}",
            hint=f"the emulator of an H200 (config.emulator.gpu) runs it on CPU tensors; {other} runs on this GPU",
        )  # fmt: skip


def _pretended(machine: Machine) -> Gpu:
    return Gpu(f"NVIDIA {machine.name}", machine.arch, machine.sms)


EMULATED = _pretended(H200())
"""The GPU whose choice the emulator runs, unless `config.emulator.gpu` names another."""
_MACHINES = {"A100": A100, "H200": H200, "B200": B200}


def emulated(arch: str = "") -> Gpu:
    """The GPU that the emulator represents for a product: that of `config.emulator.gpu`.

    arch: the target of a pinned configuration; if this GPU cannot run it, a suitable GPU is returned.
    """
    gpu = _pretended(_MACHINES[settings.emulator.gpu]())
    others = [gpu, *(_pretended(make()) for make in _MACHINES.values())]
    return next((each for each in others if not arch or each.runs(arch)), gpu)


def gpu_of(index: int) -> Gpu:
    """The GPU with that number. Raises NoGpuError."""
    from ...driver import library

    loaded = library.load()
    device = loaded.device(index)
    return Gpu(device.name, device.arch, device.sms, str(loaded.version), device.memory_gbps, device.clock_mhz)
