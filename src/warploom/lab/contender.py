"""The interface of a contender: it says why it cannot take part (`missing`), or makes a call for each operand set."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .work import Work

Beat = Callable[[str, float], None]
"""Tells the watchdog what is running, and its time limit in seconds."""
COMPILE_S = 180.0


@dataclass
class Prepared:
    """A contender that is ready to run a problem.

    Attributes:
        calls: one for each set of operands.
        kernel, config: their names in tables.
        facts: further entries of its evidence rows: registers, ptx_sha256, build.
        program: for our own kernels, and `arguments`, (inputs, output) for each set.
    """

    calls: Sequence[Callable[[], object]]
    kernel: str = ""
    config: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    program: Any = None
    arguments: Sequence[tuple[tuple[Any, ...], Any]] = ()


class Contender:
    """The common parts of contenders. `name`: in tables and evidence files; `needs`: the Python package it requires."""

    name = ""
    needs = "torch"
    dtypes: tuple[str, ...] = ("bf16", "f16", "f32")
    scales: tuple[str, ...] = ("",)
    kinds: tuple[str, ...] = ("gemm",)

    def missing(self, problem: Work | None = None) -> str | None:
        """Why it cannot take part (in this problem), as the end of a sentence; None if it can."""
        if not installed(self.needs):
            return f"{self.needs} is not installed"
        if problem is not None:
            if problem.kind not in self.kinds:
                return f"it has no {problem.kind}"
            if problem.dtype not in self.dtypes:
                return f"it does not take {problem.dtype}"
            if problem.scales not in self.scales:
                return f"it takes {'no scales' if not any(self.scales) else 'other scales'}"
        return None

    def prepare(self, problem: Any, sets: Sequence[Any], beat: Beat) -> Prepared:
        """Calls of the problem. Raises WarploomError or RuntimeError if it turns out to be impossible."""
        raise NotImplementedError


def installed(package: str) -> bool:
    """Return whether a package can be imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def result(call: Callable[[], object], operands: Any) -> Any:
    """The result of a contender's last call."""
    return getattr(call, "result", operands.out)
