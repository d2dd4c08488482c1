"""The benchmark: all contenders of a problem in one process, checked against an exact result, then timed by protocol.

    for each problem     make rotating sets of operands and the exact result
      each contender     missing? prepare, run, compare; a wrong one is not timed
      each protocol      time all of them together
    rows                 one for each (problem, contender, protocol)

A watchdog covers every launch: a contender that hangs ends the process, and the rows so far are kept. Everything
that uses a GPU is behind `Stage` (`lab.gpu_stage`), so that all of this runs in the tests without one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ..errors import WarploomError
from ..runtime.benchmark import protocols as timing
from ..runtime.benchmark.clock import ClockReading
from ..runtime.benchmark.power import PowerMeter, Readings
from ..runtime.benchmark.protocols import Spread, Timer
from ..runtime.benchmark.watchdog import Watchdog
from ..runtime.program import Program
from .contender import Contender, Prepared
from .plans import Plan
from .warploom_contender import Warploom
from .work import Work

PREPARE_S = 120.0
HOST_PASSES = 63
"""Passes over all contenders of the host protocol."""
CLOCK_S = 0.5
CHAIN = 48
"""Number of kernels in a chain of the suite `launch`."""


class Stage(Protocol):
    """The parts of a machine that the benchmark uses."""

    @property
    def timer(self) -> Timer:
        """The clocks of the stage."""

    def operands(self, problem: Work, data: str) -> list[Any]:
        """The rotating sets of a problem."""

    def check(self, problem: Work, sets: Sequence[Any], prepared: Prepared) -> tuple[float, bool]:
        """Run a contender once; its relative error, and whether every element is right."""

    def ready(self, calls: Sequence[Any], launch: str, count: int) -> tuple[Callable[[], object], int]:
        """One call that enqueues at least that many of the contender's calls, and the number it enqueues."""

    def clock(self, program: Program, arguments: Sequence[Any], seconds: float) -> tuple[ClockReading, float]:
        """The clock that our kernel counts while it runs for `seconds`, and the seconds per call in that time."""

    def share(self, reading: ClockReading, tflops: float, dtype: str) -> float | None:
        """Share of the GPU's peak at that clock; None if its peak is unknown."""

    def host_us(self, prepared: Prepared) -> float:
        """Host microseconds of one call, in one pass over its operands."""

    def device_kernels(self, prepared: Prepared) -> list[str]:
        """Names of the kernels that one call runs on the GPU; none if they cannot be found out."""

    def release(self) -> None:
        """Free the memory of a problem."""


@dataclass
class Results:
    """The results so far.

    Attributes:
        rows: for the evidence file.
        missing: contenders that did not take part, with the reason.
        failed: contenders that were wrong or failed, and where.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    missing: list[dict[str, str]] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)

    def summary(self) -> list[dict[str, Any]]:
        """Our ratios to each other contender over all problems of a type: geometric mean and minimum."""
        found: dict[tuple[str, ...], list[float]] = {}
        for row in self.rows:
            if row["provider"].startswith("warploom"):
                kind = " ".join(filter(None, (row["dtype"], row.get("scales", ""), row.get("kind", ""))))
                for other, ratio in row["ratio_to"].items():
                    key = (row["provider"], kind, row["protocol"], row["launch"], other)
                    found.setdefault(key, []).append(ratio)
        names = ("provider", "problems", "protocol", "launch", "against")
        return [
            {**dict(zip(names, key, strict=True)), "geomean": round(geomean(ratios), 4), "min": min(ratios),
             "count": len(ratios)}
            for key, ratios in found.items()
        ]  # fmt: skip


def geomean(values: Sequence[float]) -> float:
    """Geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


class Bench:
    """One run of a plan. `results` grows while it runs."""

    def __init__(
        self,
        plan: Plan,
        stage: Stage,
        meter: PowerMeter,
        watchdog: Watchdog,
        say: Callable[[str], None] = lambda line: None,
        advance: Callable[[str], None] = lambda what: None,
        keep: Callable[[], object] = lambda: None,
    ) -> None:
        """say: receives a line for each notable event; advance: called before each step, with its name; keep: called
        after each problem."""
        self.keep = keep
        self.plan, self.stage, self.meter, self.watchdog = plan, stage, meter, watchdog
        self.say, self.advance = say, advance
        self.results = Results()

    def run(self) -> Results:
        """Measure everything. Errors of one contender cost only its rows."""
        for problem in self.plan.problems:
            self.watchdog.beat(f"making operands of {problem.shape}", PREPARE_S)
            sets = self.stage.operands(problem, self.plan.data)
            prepared = self._prepared(problem, sets)
            if prepared:
                {"products": self._products, "launch": self._chains, "host": self._host}[self.plan.suite.method](
                    problem, prepared
                )
            del sets, prepared
            self.stage.release()
            self.keep()
        return self.results

    # -- before timing ---------------------------------------------------------------------------------------------

    def _prepared(self, problem: Work, sets: Sequence[Any]) -> dict[str, Prepared]:
        """The contenders that can run this problem, and compute it correctly, by name."""
        found: dict[str, Prepared] = {}
        for contender in self.plan.contenders:
            self.advance(f"{problem.shape}: {contender.name}")
            reason = contender.missing(problem)
            if reason is not None:
                self._missing(contender.name, problem, reason)
                continue
            for name, one in self._variants(contender):
                prepared = self._one(name, one, problem, sets)
                if prepared is not None:
                    found[name] = prepared
        return found

    def _variants(self, contender: Contender) -> list[tuple[str, Contender]]:
        """In the suite `launch` ours runs twice: with programmatic dependent launch and without."""
        if self.plan.suite.method == "launch" and isinstance(contender, Warploom):
            return [(contender.name, Warploom(contender.config, pdl=False)),
                    (f"{contender.name}+pdl", Warploom(contender.config, pdl=True))]  # fmt: skip
        return [(contender.name, contender)]

    def _one(self, name: str, contender: Contender, problem: Work, sets: Sequence[Any]) -> Prepared | None:
        where = f"{name} {problem.shape}"
        self.watchdog.beat(where, PREPARE_S)
        try:
            prepared = contender.prepare(problem, sets, self.watchdog.beat)
            self.watchdog.beat(f"{where}, first run", PREPARE_S)
            error, right = self.stage.check(problem, sets, prepared)
        except (WarploomError, RuntimeError, ImportError, AttributeError, TypeError, ValueError) as failure:
            self._failed(name, problem, f"{type(failure).__name__}: {str(failure)[:400]}")
            return None
        if not right:
            self._failed(name, problem, f"wrong result, relative error {error:.2e}")
            return None
        prepared.facts["relative_error"] = float(f"{error:.4g}")
        return prepared

    def _missing(self, name: str, problem: Work, reason: str) -> None:
        entry = {"provider": name, "reason": reason}
        if entry not in self.results.missing:
            self.results.missing.append(entry)
            self.say(f"{name} does not take part: {reason} ({problem.shape})")

    def _failed(self, name: str, problem: Work, reason: str) -> None:
        self.results.failed.append({"provider": name, "shape": problem.shape, "reason": reason})
        self.say(f"{name} failed at {problem.shape}: {reason}")

    # -- products: device time by protocol -------------------------------------------------------------------------

    def _products(self, problem: Work, prepared: Mapping[str, Prepared]) -> None:
        for protocol in self.plan.protocols:
            self.advance(f"{problem.shape}: {protocol}")
            spreads, labels = self._timed(problem, prepared, protocol)
            self._rows(problem, prepared, protocol, spreads, labels)

    def _timed(
        self, problem: Work, prepared: Mapping[str, Prepared], protocol: str
    ) -> tuple[dict[str, Spread], dict[str, str]]:
        """Seconds of a call of each, and the label under which its power was read."""
        calls, per = {}, {}
        for name, one in prepared.items():
            self.watchdog.beat(f"{name} {problem.shape}, capturing", PREPARE_S)
            count = timing.BURST_LAUNCHES if protocol == "burst" else 0
            calls[name], per[name] = self.stage.ready(one.calls, self.plan.launch, count)
        labels = {name: f"{name}|{problem.shape}|{protocol}" for name in prepared}

        def watch(name: str, counting: bool) -> None:
            self.watchdog.beat(f"{name} {problem.shape}, {protocol}")
            self.meter.label = labels[name] if counting else None

        rounds = self.plan.rounds if protocol == "interleaved" else 0
        spreads = timing.sample(protocol, calls, self.plan.seconds, self.stage.timer, per, watch, rounds)
        self.meter.label = None
        return spreads, labels

    def _rows(
        self,
        problem: Work,
        prepared: Mapping[str, Prepared],
        protocol: str,
        spreads: Mapping[str, Spread],
        labels: Mapping[str, str],
    ) -> None:
        for name, spread in spreads.items():
            row = self._row(problem, name, prepared[name], protocol, self.plan.launch, spread)
            row["tflops"] = spread.as_dict(lambda seconds: problem.flops / seconds / 1e12, 2)
            row |= problem.rates(spread.median)
            if protocol == "alone":
                row |= energy(self.meter.labelled.get(labels[name]), spread, problem)
                if prepared[name].program is not None:
                    self.watchdog.beat(f"{name} {problem.shape}, clock", PREPARE_S)
                    row |= clocked(self.stage, prepared[name], problem, partial(self._say_of, name))
            row["ratio_to"] = ratios(name, spreads)
            self.results.rows.append(row)

    def _say_of(self, name: str, line: str) -> None:
        self.say(f"{name}: {line}")

    def _row(
        self, problem: Work, name: str, prepared: Prepared, protocol: str, launch: str, spread: Spread
    ) -> dict[str, Any]:
        row = {
            **problem.as_dict(), "provider": name, "kernel": prepared.kernel, "config": prepared.config,
            "protocol": protocol, "launch": launch, "us": spread.as_dict(lambda seconds: seconds * 1e6, 2),
        }  # fmt: skip
        if self.plan.data != "normal":
            row["data"] = self.plan.data
        if self.plan.device_kernels:
            row["device_kernels"] = self.stage.device_kernels(prepared)
        return {**row, **self.plan.also, **prepared.facts}

    # -- launch: a chain of kernels by stream, graph, dependent launch and both ------------------------------------

    def _chains(self, problem: Work, prepared: Mapping[str, Prepared]) -> None:
        self.advance(f"{problem.shape}: chains")
        calls, per, of = {}, {}, {}
        for name, one in prepared.items():
            for launch in ("stream", "graph"):
                self.watchdog.beat(f"{name} {problem.shape}, {launch}", PREPARE_S)
                key = f"{name}|{launch}"
                calls[key], per[key] = self.stage.ready(one.calls, launch, CHAIN)
                of[key] = (name, launch)
        chained = {key: Chain(call, max(1, CHAIN // per[key])) for key, call in calls.items()}

        def watch(key: str, counting: bool) -> None:
            self.watchdog.beat(f"{key} {problem.shape}")

        each = {key: chain.times * per[key] for key, chain in chained.items()}
        spreads = timing.sample("interleaved", chained, self.plan.seconds, self.stage.timer, each, watch)
        for key, spread in spreads.items():
            name, launch = of[key]
            plain = name.removesuffix("+pdl")
            shown = launch if plain == name else {"stream": "pdl", "graph": "pdl+graph"}[launch]
            row = self._row(problem, plain, prepared[name], "interleaved", shown, spread)
            row["tflops"] = spread.as_dict(lambda seconds: problem.flops / seconds / 1e12, 2)
            same = {of[other][0]: each for other, each in spreads.items() if of[other][1] == launch}
            row["ratio_to"] = ratios(name, same)
            self.results.rows.append(row)

    # -- host: what a call costs the host --------------------------------------------------------------------------

    def _host(self, problem: Work, prepared: Mapping[str, Prepared]) -> None:
        self.advance(f"{problem.shape}: host time")
        spreads = {name: Spread() for name in prepared}
        for _ in range(HOST_PASSES):  # in turns, as the clock of a CPU drifts by more than what is compared
            for name, one in prepared.items():
                self.watchdog.beat(f"{name} {problem.shape}, host time", PREPARE_S)
                spreads[name].samples.append(self.stage.host_us(one))
        for name, spread in spreads.items():
            seconds = Spread([sample / 1e6 for sample in spread.samples])
            row = self._row(problem, name, prepared[name], "host", "stream", seconds)
            row["ratio_to"] = ratios_in_turns(name, spreads)
            self.results.rows.append(row)


class Chain:
    """Several calls as one."""

    def __init__(self, call: Callable[[], object], times: int) -> None:
        self.call, self.times = call, times

    def __call__(self) -> None:
        for _ in range(self.times):
            self.call()


def ratios(name: str, spreads: Mapping[str, Spread]) -> dict[str, float]:
    """How many times as fast `name` is as each of the other contenders that are not ours."""
    return timing.ratios(name, spreads, {other: 1 for other in spreads if not other.startswith("warploom")})


def ratios_in_turns(name: str, spreads: Mapping[str, Spread]) -> dict[str, float]:
    """The same by the median over passes: in one pass the clock of the CPU is about the same for all contenders."""
    mine = spreads[name].samples
    return {
        other: round(statistics.median(theirs / ours for theirs, ours in zip(spread.samples, mine, strict=True)), 4)
        for other, spread in spreads.items()
        if not other.startswith("warploom")
    }


def energy(readings: Readings | None, spread: Spread, problem: Work) -> dict[str, Any]:
    """The entries of a row about NVML's clock, the power and the energy of a FLOP; empty if nothing was read."""
    if readings is None or not readings.watts:
        return {}
    joules = readings.watts * spread.median
    return {"sm_clock_mhz": readings.megahertz, "power_w": round(readings.watts, 1),
            "pj_per_flop": round(joules / problem.flops * 1e12, 4)}  # fmt: skip


def clocked(stage: Stage, prepared: Prepared, problem: Work, say: Callable[[str], None]) -> dict[str, float]:
    """The entries of a row about the clock that the kernel itself counts, and the tensor cores' activity at it."""
    try:
        reading, seconds = stage.clock(prepared.program, prepared.arguments, CLOCK_S)
    except WarploomError as failure:  # the kernel does not build with the clock read in it
        say(f"its clock could not be read: {failure}")
        return {}
    share = stage.share(reading, problem.flops / seconds / 1e12, problem.dtype)
    activity = {} if share is None else {"tensor_activity": round(share, 4)}
    return {"kernel_clock_mhz": round(reading.megahertz, 1), **activity}
