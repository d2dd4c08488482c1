"""Shared code of the attention benchmarks: arguments, GPU, power, watchdog, and rows saved after each case."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch

from warploom.errors import ArgumentError, WarploomError
from warploom.kernels.hopper.attention_config import Config
from warploom.kernels.hopper.attention_decode_config import DecodeConfig
from warploom.lab import attention_operands, evidence
from warploom.lab.attention_contenders import WarploomAttention, ours, ours_decode
from warploom.lab.attention_operands import AttentionOperands, AttentionReference
from warploom.lab.attention_problem import AttentionWork, ForwardProblem
from warploom.lab.bench import ratios
from warploom.lab.contender import Beat, Contender, Prepared
from warploom.lab.gpu_stage import compared
from warploom.lab.plans import meant
from warploom.lab.work import Work
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.gpu import Gpu
from warploom.runtime.benchmark.power import PowerMeter, driver_version
from warploom.runtime.benchmark.protocols import Spread
from warploom.runtime.benchmark.watchdog import Watchdog

Row = dict[str, Any]


C = TypeVar("C", bound=Work)


class Variant(WarploomAttention):
    """Our kernel in one configuration."""

    def __init__(self, name: str, config: Config | DecodeConfig) -> None:
        super().__init__()
        self.name, self.config = name, config

    def prepare(self, problem: AttentionWork, sets: Sequence[AttentionOperands], beat: Beat) -> Prepared:
        if isinstance(problem, ForwardProblem):
            assert isinstance(self.config, Config)
            return ours(problem, sets, self.config)
        assert isinstance(self.config, DecodeConfig)
        return ours_decode(problem, sets, self.config)


@dataclass
class Session:
    """A run on a GPU."""

    asked: argparse.Namespace
    gpu: Gpu
    meter: PowerMeter
    watchdog: Watchdog
    prepared: dict[str, Prepared] = field(default_factory=dict)
    """Contenders whose results for the current case are correct."""
    ready: dict[str, tuple[Callable[[], object], int]] = field(default_factory=dict)
    """For each contender a callable, and the number of launches that it enqueues."""
    watts: dict[str, float] = field(default_factory=dict)
    """Power of each contender in its last sample."""

    def prepare(self, case: AttentionWork, contenders: Sequence[Contender], launch: str = "stream") -> None:
        """Make a case's arrays and check every available contender against the exact result."""
        sets = attention_operands.make(case)
        exact = attention_operands.reference(case, sets[0])
        self.prepared, self.ready = {}, {}
        for each in contenders:
            reason = each.missing(case)
            if reason is None:
                self.watchdog.beat(f"{case.name}: {each.name}", 120)
                reason = self._prepare(case, each, sets, exact, launch)
            if reason is not None:
                print(f"    {each.name}: {reason[:120]}", flush=True)

    def _prepare(
        self, case: AttentionWork, one: Contender, sets: list[Any], exact: AttentionReference, launch: str
    ) -> str | None:
        """The reason why a contender is left out."""
        try:
            found = one.prepare(case, sets, self.watchdog.beat)
            error, right = compared(exact, sets, found, torch.cuda.synchronize)
            if not right:
                return f"wrong result, relative error {error:.2e} {found.facts}"
            self.ready[one.name] = self.gpu.ready(found.calls, launch)
        except (WarploomError, RuntimeError) as failure:  # a backend that does not have it
            return str(failure).splitlines()[0]
        found.facts["relative_error"] = float(f"{error:.4g}")
        self.prepared[one.name] = found
        return None

    def rows(self, case: AttentionWork, protocol: str = "alone") -> Iterator[Row]:
        """Time the prepared contenders."""
        calls = {name: call for name, (call, _) in self.ready.items()}
        spreads = self.sample(case, calls, protocol, {name: count for name, (_, count) in self.ready.items()})
        for name, prepared in self.prepared.items():
            more = dict(prepared.facts)
            if prepared.config != name:
                more |= {"kernel": prepared.kernel, "config": prepared.config}
            yield self.row(case, name, protocol, spreads, more)

    def row(
        self, case: Work, name: str, protocol: str, spreads: Mapping[str, Spread], more: Row, times: float = 1
    ) -> Row:
        """One row of evidence. times: the factor on each case's FLOP."""
        spread = spreads[name]
        return {
            **case.as_dict(), "provider": name, "protocol": protocol, "us": spread.as_dict(lambda s: s * 1e6, 2),
            "tflops": spread.as_dict(lambda s: times * case.flops / s / 1e12, 1), **case.rates(spread.median),
            "ratio_to": ratios(name, spreads), **more, **self.power(name, protocol),
        }  # fmt: skip

    def sample(
        self, case: Work, calls: Mapping[str, Callable[[], Any]], protocol: str = "alone",
        per_call: Mapping[str, int] | None = None,
    ) -> dict[str, Spread]:  # fmt: skip
        """The times of the contenders, by name."""

        def watch(who: str, counting: bool) -> None:
            self.watchdog.beat(f"{case.shape}: {who}")
            self.meter.label = who if counting else None

        self.meter.labelled.clear()
        seconds = 2 * self.asked.seconds
        spreads = protocols.sample(protocol, calls, seconds, self.gpu.timer, per_call, watch, rounds=15)
        self.meter.label = None
        self.watts = {name: round(power.watts, 1) for name, power in self.meter.labelled.items() if power.watts}
        return spreads

    def power(self, name: str, protocol: str = "alone") -> Row:
        """The power of a row; slices of a few milliseconds are too short for the meter."""
        return {"power_w": self.watts[name]} if protocol == "alone" and name in self.watts else {}


@dataclass
class Suite(Generic[C]):
    """An attention benchmark.

    Attributes:
        name: name of the evidence; the program is benchmarks.<name>, with underscores.
        doc: the program's module docstring.
        cases: all cases that can be measured.
        fits: true if a case matches the words of --only, where semicolons separate alternatives.
        measure: returns a case's rows.
        told: summarises a case's rows.
        seconds: length of a block.
    """

    name: str
    doc: str | None
    cases: Sequence[C]
    fits: Callable[[C, str], bool]
    measure: Callable[[C, Session], Iterable[Row]]
    told: Callable[[Sequence[Row]], str]
    seconds: float = 0.5

    def parser(self) -> argparse.ArgumentParser:
        """Command-line arguments shared by all benchmarks."""
        program = "python -m benchmarks." + self.name.replace("-", "_")
        parser = argparse.ArgumentParser(prog=program, description=(self.doc or "").split("\n")[0])
        parser.add_argument("--out", type=Path, default=None)
        parser.add_argument("--only", default="", help="cases with these words: 'causal,normal;f16'")
        parser.add_argument("--seconds", type=float, default=self.seconds, help="of a block")
        parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no case is begun")
        return parser

    def run(self, asked: argparse.Namespace, prepare: Callable[[Sequence[C]], None] | None = None) -> int:
        """Measure the selected cases. prepare: called with them first. A refusal ends the program with its sentence."""
        try:
            return self._run(asked, prepare)
        except WarploomError as failure:
            sys.exit(f"{type(failure).__name__}: {failure}")

    def _run(self, asked: argparse.Namespace, prepare: Callable[[Sequence[C]], None] | None) -> int:
        evidence.check_place(asked.out)
        chosen = [case for case in self.cases if any(self.fits(case, words) for words in asked.only.split(";"))]
        if not chosen:
            names = ", ".join(case.name for case in self.cases)
            raise ArgumentError("no case has these words", expected=f"words of {names}", got=asked.only)
        torch.set_grad_enabled(False)
        gpu = Gpu(0, 20.0)
        rows: list[Row] = []
        head, begun = evidence.header(self.name, gpu=gpu.name, driver=driver_version()), gpu.timer.now()

        def keep(who: str = "") -> None:
            if who:
                print(f"HANG {who}", flush=True)
            if asked.out is not None:
                evidence.write(asked.out, {**head, **meter.header()}, rows)

        if prepare is not None:
            prepare(chosen)
            print(f"built in {gpu.timer.now() - begun:.0f} s", flush=True)
        with PowerMeter(gpu.uuid) as meter, Watchdog(keep) as watchdog:
            session = Session(asked, gpu, meter, watchdog)
            for case in chosen:
                if gpu.timer.now() - begun > asked.budget:
                    print(f"left out: {case.shape}", flush=True)
                    continue
                watchdog.beat(f"{case.shape}: building", 60)
                found = list(self.measure(case, session))
                rows += found
                print(self.told(found) if found else f"{case.shape}: nothing", flush=True)
                keep()
                torch.cuda.empty_cache()
        return 0


def fits(case: Work, words: str) -> bool:
    """True if a case's name contains all of the comma-separated words."""
    return bool(meant([case], words))
