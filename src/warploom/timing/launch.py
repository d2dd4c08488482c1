"""The inputs of a prediction besides the recording."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """How a recorded kernel is launched.

    Attributes:
        registers: registers per thread, from ptxas; 0 if unknown.
        stack_bytes: local memory per thread, from ptxas; 0 if unknown.
        input_bytes, output_bytes: sizes of the arrays that it reads and of those that it writes; 0 if unknown.
        writable_bytes: size of all arrays that it may write; 0 if unknown.
        warm: its inputs are in L2, as in repeated launches on small arrays.
        zeros: its data are zeros.
        cap_watts: power cap; 0 for the hardware's.
        clock_mhz: a fixed clock; 0 for the one that power allows.
    """

    registers: int = 0
    input_bytes: float = 0.0
    output_bytes: float = 0.0
    writable_bytes: float = 0.0
    warm: bool = False
    zeros: bool = False
    cap_watts: float = 0.0
    clock_mhz: float = 0.0
    stack_bytes: int = 0
