"""The GPU that a grid rule and the emulator's residency assume: SMs, target, shared memory.

H200(sms=4)        an H200 with four multiprocessors, for emulating persistent kernels quickly
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..errors import ArgumentError, ArgumentTypeError
from ..isa import arch as arches
from ..isa.arch import Arch
from ..isa.residency import H200_SMS, clusters_at_once

LAUNCH_CONTROL = ("schedule", "grant", "decline", "random")
A100_SMS, B200_SMS = 108, 148


@dataclass(frozen=True)
class Machine:
    """A GPU, as seen by a kernel's grid rule.

    Attributes:
        name: its common name.
        arch: the target of its own instructions, "sm_90a".
        sms: number of multiprocessors.
        launch_control: the emulator's answer to a cluster that requests the next one (cluster launch control):
            "grant", "decline", "random", or "schedule" (random under schedule "random", otherwise always granted).
        resident: the driver's answer to `clusters`; it returns 0 if it does not know.
    """

    name: str
    arch: str
    sms: int
    launch_control: str = "schedule"
    resident: Callable[[int], int] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        arches.get(self.arch)
        if not isinstance(self.sms, int):
            raise ArgumentTypeError("the number of multiprocessors must be an integer", expected="an int", got=self.sms)
        if self.sms < 1:
            raise ArgumentError("a machine has at least one multiprocessor", expected="sms >= 1", got=self.sms)
        if self.launch_control not in LAUNCH_CONTROL:
            raise ArgumentError(
                "launch_control= is unknown",
                expected=", ".join(LAUNCH_CONTROL),
                got=self.launch_control,
            )

    def clusters(self, ctas: int) -> int:
        """Clusters of `ctas` CTAs that run at one time, one CTA on each multiprocessor; at least 1.

        A persistent kernel launches no more: one that finds no place waits until all the others have ended.
        """
        known = self.resident(ctas) if self.resident is not None and ctas > 2 else 0
        return max(1, known or clusters_at_once(ctas, self.sms))

    @property
    def limits(self) -> Arch:
        """Limits of the target: shared memory, registers, warps."""
        return arches.get(self.arch)

    @property
    def shared_per_cta(self) -> int:
        """Maximum bytes of shared memory of one CTA."""
        return self.limits.shared_per_cta


def H200(sms: int = H200_SMS) -> Machine:  # noqa: N802
    """NVIDIA H200 (SXM)."""
    return Machine("H200", "sm_90a", sms)


def H100(sms: int = H200_SMS) -> Machine:  # noqa: N802
    """NVIDIA H100 (SXM)."""
    return Machine("H100", "sm_90a", sms)


def A100(sms: int = A100_SMS) -> Machine:  # noqa: N802
    """NVIDIA A100."""
    return Machine("A100", "sm_80", sms)


def B200(sms: int = B200_SMS, launch_control: str = "schedule") -> Machine:  # noqa: N802
    """NVIDIA B200."""
    return Machine("B200", "sm_100a", sms, launch_control)


def check_runs(what: str, arch: str, device: str, got: str, hint: str) -> None:
    """Raise ArgumentError if a GPU does not run the text of a kernel.

    arch, device: the text's target and the GPU's own. got: the GPU's name.
    """
    text, gpu = arches.get(arch), arches.get(device)
    if gpu.supports(text.name):
        return
    raise ArgumentError(
        f"{what} is for {text}, but this GPU is {gpu}",
        expected=f"a GPU of {text}" + ("" if text.suffix else " or later"),
        got=got,
        hint=hint,
        code="wrong-gpu",
    )


def for_arch(arch: str) -> Machine:
    """The default machine on which a target is emulated."""
    number = arches.get(arch).number
    if number >= 100:
        return Machine("B200", arch, B200_SMS)
    return Machine("H200", arch, H200_SMS) if number >= 90 else Machine("A100", arch, A100_SMS)
