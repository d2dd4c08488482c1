"""What the programs that time attention share: arguments, GPU, power, watchdog, rows that are kept after each case."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from warploom.lab import evidence
from warploom.runtime.benchmark import protocols
from warploom.runtime.benchmark.gpu import Gpu
from warploom.runtime.benchmark.power import PowerMeter, driver_version
from warploom.runtime.benchmark.watchdog import Watchdog

Row = dict[str, Any]


class Named(Protocol):
    """A case."""

    @property
    def name(self) -> str:
        """As it is called in evidence."""


C = TypeVar("C", bound=Named)


@dataclass
class Session:
    """A run on a GPU."""

    asked: argparse.Namespace
    gpu: Gpu
    meter: PowerMeter
    watchdog: Watchdog
    watts: dict[str, float] = field(default_factory=dict)
    """Of each contender in the last sample."""

    def sample(self, case: Named, calls: Mapping[str, Callable[[], Any]], protocol: str = "alone") -> dict[str, Any]:
        """How long the contenders take, by name."""

        def watch(who: str, counting: bool) -> None:
            self.watchdog.beat(f"{case.name}: {who}")
            self.meter.label = who if counting else None

        self.meter.labelled.clear()
        spreads: dict[str, Any] = protocols.sample(
            protocol, calls, 2 * self.asked.seconds, self.gpu.timer, watch=watch, rounds=15
        )
        self.meter.label = None
        self.watts = {name: round(power.watts, 1) for name, power in self.meter.labelled.items() if power.watts}
        return spreads

    def power(self, name: str, protocol: str = "alone") -> Row:
        """What a row says of it; slices of a few milliseconds are too short for the meter."""
        return {"power_w": self.watts[name]} if protocol == "alone" and name in self.watts else {}


@dataclass
class Suite(Generic[C]):
    """A program.

    Attributes:
        name: of the evidence; the program is benchmarks.<name>, with underscores.
        doc: of the program's module.
        cases: all that may be measured.
        fits: whether a case is meant by words of --only, separated by semicolons there.
        measure: gives a case's rows.
        told: a case's rows in a few words.
        seconds: of a block.
    """

    name: str
    doc: str | None
    cases: Sequence[C]
    fits: Callable[[C, str], bool]
    measure: Callable[[C, Session], Iterable[Row]]
    told: Callable[[Sequence[Row]], str]
    seconds: float = 0.5

    def parser(self) -> argparse.ArgumentParser:
        """The arguments that all programs have."""
        program = "python -m benchmarks." + self.name.replace("-", "_")
        parser = argparse.ArgumentParser(prog=program, description=(self.doc or "").split("\n")[0])
        parser.add_argument("--out", type=Path, default=None)
        parser.add_argument("--only", default="", help="cases with these words: 'causal,normal;f16'")
        parser.add_argument("--seconds", type=float, default=self.seconds, help="of a block")
        parser.add_argument("--budget", type=float, default=1e9, help="seconds after which no case is begun")
        return parser

    def run(
        self, asked: argparse.Namespace, prepare: Callable[[Sequence[C]], None] | None = None
    ) -> int:  # fmt: skip
        """Measure all cases that are asked for. `prepare`: what to do with them before."""
        evidence.check_place(asked.out)
        torch.set_grad_enabled(False)
        gpu = Gpu(0, 20.0)
        rows: list[Row] = []
        head, begun = evidence.header(self.name, gpu=gpu.name, driver=driver_version()), gpu.timer.now()

        def keep(who: str = "") -> None:
            if who:
                print(f"HANG {who}", flush=True)
            if asked.out is not None:
                evidence.write(asked.out, {**head, **meter.header()}, rows)

        chosen = [case for case in self.cases if any(self.fits(case, words) for words in asked.only.split(";"))]
        if prepare is not None:
            prepare(chosen)
            print(f"built in {gpu.timer.now() - begun:.0f} s", flush=True)
        with PowerMeter(gpu.uuid) as meter, Watchdog(keep) as watchdog:
            session = Session(asked, gpu, meter, watchdog)
            for case in chosen:
                if gpu.timer.now() - begun > asked.budget:
                    print(f"left out: {case.name}", flush=True)
                    continue
                watchdog.beat(f"{case.name}: building", 60)
                found = list(self.measure(case, session))
                rows += found
                print(self.told(found) if found else f"{case.name}: nothing", flush=True)
                keep()
                torch.cuda.empty_cache()
        return 0


def all_words(case: Named, words: str) -> bool:
    """Whether a case's name has all of some words, separated by commas."""
    return all(f" {word}" in f" {case.name}" for word in words.split(",") if word)
