"""The plan of a benchmark run: problems, contenders, protocols, from the options of a command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import ArgumentError
from ..runtime.benchmark import protocols as timing
from . import attention_problem
from . import contenders as known
from .attention_contenders import WarploomAttention
from .contender import Contender
from .operands import DATA
from .suites import Suite, find
from .warploom_contender import Warploom
from .work import GemmWork, Work, parse_shapes

P = TypeVar("P", bound=Work)


@dataclass(frozen=True)
class Plan:
    """The measurements of a run.

    Attributes:
        protocols: of `timing.PROTOCOLS`.
        data: of `operands.DATA`.
        seconds: for each contender of a problem, under each protocol.
        launch: "graph" or "stream".
        rounds: of the protocol "interleaved"; 0: as many as fit in `seconds`.
        device_kernels: True if rows name the kernels that ran on the GPU.
        also: further entries of every row, such as the seed of a sample.
    """

    suite: Suite
    problems: tuple[Work, ...]
    contenders: tuple[Contender, ...]
    protocols: tuple[str, ...]
    data: str = "normal"
    seconds: float = 2.0
    launch: str = "graph"
    rounds: int = 0
    device_kernels: bool = False
    also: Mapping[str, Any] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """Number of steps in a run: a contender's preparation, or a measurement."""
        measurements = len(self.protocols) if self.suite.method == "products" else 1
        return len(self.problems) * (len(self.contenders) + measurements)


def plan(
    suite: str | Suite,
    protocols: str = "",
    against: str = "",
    configs: Sequence[str] = (),
    shapes: str = "",
    data: str = "normal",
    seconds: float = 2.0,
    launch: str = "",
    only: str = "",
) -> Plan:
    """The plan for the options of a command line. Raises ArgumentError for unknown names.

    only: the problems that are `meant`.
    """
    chosen = find(suite) if isinstance(suite, str) else suite
    wanted = tuple(filter(None, protocols.split(","))) or chosen.protocols
    for name in wanted:
        timing.check_protocol(name)
    if data not in DATA:
        raise ArgumentError(f"unknown data {data!r}", expected=", ".join(DATA), got=repr(data), code="unknown-name")
    if launch not in ("", "graph", "stream"):
        raise ArgumentError("unknown launch method", expected="graph, stream", got=launch)
    if not seconds > 0:
        raise ArgumentError("the time of a contender must be positive", expected="seconds > 0", got=seconds)
    names = [word.strip() for word in against.split(",") if word.strip()] or list(chosen.against)
    others = [] if names == ["none"] else [known.find(name) for name in names if name != "warploom"]
    first = chosen.problems[0]
    of_attention = not isinstance(first, GemmWork)
    if of_attention and data != "normal":
        raise ArgumentError("attention problems have their data in their names",
                                                expected="normal; --only finds a name", got=repr(data))  # fmt: skip
    problems: tuple[Work, ...] = chosen.problems
    if shapes:
        problems = (
            parse_shapes(shapes, first) if isinstance(first, GemmWork) else attention_problem.parse(shapes, first)
        )
    problems = named(problems, only)
    ours = WarploomAttention if of_attention else Warploom
    mine = [ours(config) for config in configs or chosen.configs]
    return Plan(chosen, problems, (*mine, *others), wanted, data, seconds, launch or chosen.launch)


def meant(problems: Sequence[P], only: str) -> tuple[P, ...]:
    """Problems whose name, type or data has all words of "causal,f16", or of another list after a semicolon."""

    def fits(problem: P, words: str) -> bool:
        name = f" {problem.shape} {problem.dtype} {problem.as_dict().get('data', '')} "
        return all(f" {word.strip()} " in name for word in words.split(",") if word.strip())

    return tuple(problem for problem in problems if any(fits(problem, words) for words in only.split(";")))


def named(problems: Sequence[Work], only: str) -> tuple[Work, ...]:
    """Problems that are `meant`. Raises ArgumentError if there is none."""
    found = meant(problems, only)
    if not found:
        raise ArgumentError("no problem of the suite has these words in its name",
                            expected=f"words of {', '.join(problem.shape for problem in problems[:8])}", got=only,
                            code="unknown-name")  # fmt: skip
    return found
