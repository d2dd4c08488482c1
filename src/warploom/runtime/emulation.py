"""The runs of one emulation: on the caller's arrays, and on copies to estimate, to explore and to settle findings."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from ..emulator import api
from ..emulator.diagnosis.report import Interleavings, Report
from ..emulator.machine.events import Observer
from ..emulator.machine.machine import POISON
from ..emulator.machine.machine import Machine as EmulatedMachine
from ..emulator.machine.model import Model
from ..emulator.schedule import exhaustive
from ..emulator.schedule.controlled import Choose
from ..errors import ArgumentError, EmulationError, StepLimitError
from ..sanitizer import SPOILS, PerturbedLoads, Sanitizer, explore
from ..sanitizer.loose_reads import Reads
from ..settings import config
from . import estimate as estimates
from .arrays import given_back
from .asked import EXHAUSTIVE, EXPLORE, Asked
from .bind import Bound, bind
from .copies import of_emulator
from .dispatch import complete
from .host_values import Values, all_values
from .loading import launch_of, loaded
from .loose_reads import unused_reads
from .machine import Machine
from .program import Program
from .progress import Progress
from .unwritten import OTHERS, settled
from .validate import at_least

OnProgress: TypeAlias = "Callable[[int, int], None]"
Pair: TypeAlias = "tuple[str, int]"
"""A schedule and a seed."""


class Emulation:
    """A call that is bound to its arrays and to the machine that runs it; `report` runs it as it is asked for."""

    def __init__(self, asked: Asked, target: Machine) -> None:
        program = asked.program
        self.asked, self.program = asked, program
        self.completed = [complete(*looked) for looked in asked.everyone]
        self.bounds = [bind(program, arguments, target, asked.shape) for arguments, _ in self.completed]
        _check_same_grid(program, self.bounds)
        self.codes = loaded(program.text, program.title, program.entry)
        self.model = _model_of(target)
        self.settings = config.emulator
        self.most = self.settings.max_steps if asked.max_steps is None else asked.max_steps
        self.sanitizers: list[Sanitizer] = []
        """The one of the latest run."""

    def report(self) -> Report:
        """Run everything that is asked for. Raises CostLimitError before anything long, and EmulationError."""
        asked, title = self.asked, self.program.title
        limit_s = self.settings.limit_s
        estimates.refuse_if_long(estimates.estimate(_clusters(self.bounds[0]), self.sample, limit_s), limit_s, title)
        with Progress(f"emulating {title}", after_s=self.settings.progress_after_s) as bar:
            started, pair = time.perf_counter(), asked.usual
            tried: tuple[Pair, ...] = ()
            if asked.schedule == EXPLORE:
                found = explore(lambda *pair: self.tried(pair, bar))
                pair, tried = found.failing or pair, found.tried
            interleavings = self.search() if asked.schedule == EXHAUSTIVE else None
            if interleavings is not None and not interleavings.ok:
                return Report(
                    self.program.entry, findings=list(interleavings.findings), schedule=EXHAUSTIVE,
                    interleavings=interleavings,
                )  # fmt: skip
            try:
                report = self.judged(self.values(), pair, bar, asked.watch)
            except EmulationError as error:
                error.add_note(f"  replay with schedule={pair[0]!r}, seed={pair[1]}")
                error.replay, error.explored = pair, tried
                raise
            report.explored, report.interleavings = tried, interleavings
            if tried or interleavings is not None:
                report.seconds = time.perf_counter() - started  # of all runs
        if self.program.arrays:
            report.outputs = self.outputs()  # type: ignore[assignment]
        return report

    def values(self, copy: bool = False) -> Values:
        """The arguments of one run. copy: what it writes are copies."""
        return all_values(self.bounds, copy, self.asked.held)

    def launch(
        self,
        values: Values,
        pair: Pair,
        *,
        steps: int | None = None,
        on_progress: OnProgress | None = None,
        clusters: int | None = None,
        watch: Callable[[EmulatedMachine], Observer] | None = None,
        choose: Choose | None = None,
        unwritten: bytes = POISON,
        spoiled: tuple[Reads, tuple[int, int]] | None = None,
    ) -> Report:
        """One run of the emulator. spoiled: loads that get other values, and what these are."""
        asked = self.asked
        spoil = partial(PerturbedLoads, reads=spoiled[0], spoil=spoiled[1]) if spoiled else None
        views = [array for bound in self.bounds for array in bound.views]
        return api.run(
            self.codes,
            self.program.entry,
            values.of_each[0],
            **launch_of(self.bounds[0]),
            detailed=asked.check,
            schedule=pair[0],
            seed=pair[1],
            max_steps=self.most if steps is None else steps,
            model=self.model,
            numerics=asked.numerics,
            on_progress=on_progress,
            max_clusters=clusters,
            choose=choose,
            watch=[maker for maker in (self.sanitizer if asked.check else None, watch, spoil) if maker is not None],
            others=values.of_each[1:],
            owners=values.owners,
            calls=asked.calls,
            unwritten=unwritten,
            copies=of_emulator(asked.copies, views, sum(values.hosts, [])),
        )

    def sanitizer(self, machine: EmulatedMachine) -> Sanitizer:
        """The sanitizer of a run, which `judged` asks for the loads that race."""
        self.sanitizers[:] = [Sanitizer(machine, strict=self.settings.strict)]
        return self.sanitizers[0]

    def judged(
        self,
        values: Values,
        pair: Pair,
        on_progress: OnProgress,
        watch: Callable[[EmulatedMachine], Observer] | None = None,
    ) -> Report:
        """One run, and further ones on copies if only they tell whether what it found is an error."""
        checked = self.asked.check
        copies = [self.values(True) if checked else values for _ in range(len(OTHERS) + len(SPOILS))]
        report = self.launch(values, pair, on_progress=on_progress, watch=watch)
        reads = self.sanitizers[0].loose_reads() if checked else {}
        report = settled(report, lambda other: self.launch(copies.pop(), pair, unwritten=other), self.settings.strict)
        again = (self.launch(spare, pair, spoiled=(reads, spoil)) for spare, spoil in zip(copies, SPOILS, strict=False))
        return unused_reads(report, reads, again)

    def tried(self, pair: Pair, bar: OnProgress) -> Report:
        """One run of an exploration, on copies unless the outputs are judged, which may inspect the arrays."""
        judge = self.asked.judge
        if judge is None:
            return self.judged(self.values(True), pair, bar)
        hosts = [array.host for bound in self.bounds for array in bound.views if array.host is not None]
        before = [host.copy() for host in hosts]
        try:
            report = self.judged(self.values(), pair, bar)
            judge(*(self.outputs() if self.program.arrays else report.outputs))
        finally:
            for host, values in zip(hosts, before, strict=True):
                host[...] = values
        return report

    def search(self) -> Interleavings:
        """All interleavings, each on copies, in at most `bound` runs."""
        bound = self.asked.bound
        with Progress(f"{self.program.title}, interleavings", after_s=2.0, every_s=10.0) as told:
            return exhaustive.search(
                lambda choose: self.launch(self.values(True), self.asked.usual, choose=choose),
                exhaustive.BOUND if bound is None else at_least(1, bound, "bound"),
                told,
            )

    def sample(self, clusters: int, steps: int) -> float:
        """The processor's time for the first clusters, on copies, for an estimate: others may use the machine, too."""
        copies = self.values(True)
        started = time.thread_time()
        try:
            self.launch(copies, self.asked.usual, steps=steps, clusters=clusters)
        except StepLimitError as error:
            error.seconds = time.thread_time() - started  # type: ignore[attr-defined]
            raise
        return time.thread_time() - started

    def outputs(self) -> tuple[Any, ...]:
        """The out arrays of a kernel, in the caller's framework."""
        given: list[tuple[Any, ...]] = [
            tuple(given_back(value, looked[1]) for value in outs)
            for looked, (_, outs) in zip(self.asked.everyone, self.completed, strict=True)
        ]
        return given[0] if len(given) == 1 else tuple(zip(*given, strict=True))


def _check_same_grid(program: Program, bounds: Sequence[Bound]) -> None:
    first = bounds[0].grid
    if different := [bound.grid for bound in bounds if bound.grid != first]:
        raise ArgumentError(
            f"the GPUs that run {program.title} would launch different grids",
            expected=f"{first}, as on GPU 0", got=str(different[0]),
            consequence="some would wait for tiles that no other GPU computes",
            hint="pass arrays of the same shapes on every GPU",
        )  # fmt: skip


def _model_of(target: Machine) -> Model:
    limits = target.limits
    return Model(
        name=target.name,
        sms=target.sms,
        warps_per_sm=limits.warps_per_sm,
        max_ctas_per_sm=limits.ctas_per_sm,
        shared_per_sm=limits.shared_per_sm,
        launch_control=target.launch_control,
    )


def _clusters(bound: Bound) -> int:
    ctas = bound.grid[0] * bound.grid[1] * bound.grid[2]
    return ctas // (bound.cluster[0] * bound.cluster[1] * bound.cluster[2])
