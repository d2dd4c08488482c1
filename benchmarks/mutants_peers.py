"""Measure how many mutants of kernels on several GPUs the sanitizer finds, emulated on two devices.

    python -m benchmarks.mutants_peers [--kernel NAME] [--sample N | --missed]

In addition to the mutations of `zoo`, a signal or an acquire may reach only its own GPU, order nothing or be missing,
and a poll may succeed at once. A mutant counts as found if the run ends in an error, has a finding that the kernel
itself does not have, times out in a wait, or leaves other bits in memory ("wrong-result"). Mutants that are as correct
as their kernel are listed in `EQUIVALENT`, each by its place.

N mutants of each kernel are drawn with a fixed seed (`of` is the total). Each kernel's row goes into
benchmarks/results/emulated/mutants-peers.json as soon as it is done. `--missed` judges only those mutants again that
the file lists as missed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mutants_blackwell import IN_CTA, Verdict, row
from benchmarks.zoo import mutate
from benchmarks.zoo.mutate import Mutant
from benchmarks.zoo.mutations import MUTATIONS, ORDERS, Facts, Mutation, Rewrite
from tests.kernels import test_all_reduce as all_reduce
from tests.kernels import test_expert_parallel as experts
from tests.kernels import test_tensor_parallel as plain
from tests.kernels import test_tensor_parallel_scaled as scaled
from warploom import asm
from warploom.asm.nodes import Instruction, Register, Statement
from warploom.collective.reduce.peers import FORMS
from warploom.collective.tile import timeout_record
from warploom.errors import EmulationError

FILE = Path(__file__).parent / "results" / "emulated" / "mutants-peers.json"
SAMPLE = 60
SCHEDULES = (("lazy", 0), ("starve", 0), ("random", 0), ("starve", 1), ("eager", 0), ("pct", 0))
DEEP = 656
"""K: six k-tiles, so that the ring of three stages wraps around."""
BY_TMA: dict[str, Any] = {"by": "tma", "in_flight": 4}
"""As few bulk copies on their way as let small products use each slot again."""
LONGER = 3
"""A mutant counts as hanging after this many times the steps of the slowest schedule."""
SUMS = tuple(f"all-reduce, {form.replace('_', ' ')}" for form in FORMS)
SUMMED = "s128x8w2_2_p_f3"
"""The tile of the all-reduce: two consumers, several tiles per CTA."""
POLL = "ld.acquire.sys.global.u32"
OWN = "it waits for CTAs of this GPU alone"
IMPLICIT = "a proxy fence is implied where wait_group has seen a bulk copy complete (PTX ISA, async proxy)"
NEXT = "a barrier of all threads that take part follows at once"
OWN_RESULT = "the last stores are to this GPU's own result, complete when the kernel is"
OWN_ARRIVAL = "every thread arrives on the mbarrier behind it; it only keeps ptxas from moving values across it"
OWN_WORDS = "a thread stores the words that it reads itself: the last of the GPUs it sends to is its own"
EQUIVALENT: tuple[tuple[str, str, str, str], ...] = (
    *(
        (name, "drop-init-fence", "fence.mbarrier_init.release.cluster#0", IN_CTA)
        for name in ("expert parallel", "all-gather", plain.BY_TMA, plain.COPIED, "reduce-scatter", *SUMS)
    ),
    ("expert parallel", "drop-barrier", "bar.warp.sync#3", NEXT),
    ("expert parallel", "signal-of-own-gpu", f"{POLL}#4", OWN),
    ("expert parallel", "signal-of-own-gpu", "red.release.sys.global.add.u32#2", OWN),
    *(
        (name, "wait-for-reads-only", f"cp.async.bulk.wait_group#{at}", OWN_RESULT)
        for name in ("all-gather", plain.COPIED)
        for at in (0, 1)
    ),
    ("reduce-scatter", "drop-proxy-fence", "fence.proxy.async#0", IMPLICIT),
    (plain.BY_TMA, "drop-proxy-fence", "fence.proxy.async#1", IMPLICIT),
    *((plain.BY_TMA, "wait-for-reads-only", f"cp.async.bulk.wait_group#{at}", OWN_RESULT) for at in (3, 4)),
    *(("reduce-scatter", "drop-barrier", f"bar.sync#{at}", OWN_ARRIVAL) for at in (2, 4)),
    *((SUMS[0], "signal-of-own-gpu", f"st.relaxed.sys.global.v2.b32#{at}", OWN_WORDS) for at in (1, 5)),
)
"""Kernel, kind of mutation, site, reason."""


# -- what can be wrong with signals between GPUs ---------------------------------------------------------------------


SENT = ("red.release.sys", "st.relaxed.sys")


def _signal(instruction: Instruction) -> bool:
    return instruction.opcode.startswith((*SENT, POLL, "ld.relaxed.sys"))


def _ordering(instruction: Instruction) -> bool:
    return instruction.opcode.startswith(("red.release.sys", POLL, "atom.acq_rel"))


def _reaching(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    return [(replace(instruction, opcode=instruction.opcode.replace(".sys", ".gpu")),)]


def _unordered(instruction: Instruction, facts: Facts) -> list[Rewrite]:
    opcode = instruction.opcode
    for order in ("acq_rel", "release", "acquire"):
        opcode = opcode.replace(order, "relaxed")
    return [(replace(instruction, opcode=opcode),)]


def _seen(body: tuple[Statement, ...], at: int) -> tuple[Statement, ...] | None:
    """A poll that reads the value that it waits for."""
    poll = body[at]
    if not isinstance(poll, Instruction) or poll.opcode != POLL:
        return None
    for later in body[at + 1 :]:
        if isinstance(later, Instruction) and later.opcode == "sub.u32" and later.operands[1] == poll.operands[0]:
            assert isinstance(later.operands[2], Register)
            there = replace(poll, opcode="mov.b32", operands=(poll.operands[0], later.operands[2]))
            return (*body[:at], there, *body[at + 1 :])
    return None


PEER_MUTATIONS = (
    Mutation("signal-of-own-gpu", _signal, _reaching),
    Mutation("signal-without-order", _ordering, _unordered),
    Mutation("drop-signal", lambda i: i.opcode.startswith(SENT), lambda i, facts: [()]),
)
PEER_ORDERS = {"wait-sees-at-once": ("the poll sees what it waits for", _seen)}


# -- the kernels -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Peers:
    """A kernel of two GPUs, and a function that runs its text on each problem: returns report and wait records."""

    module: asm.nodes.Module
    runs: tuple[Callable[..., tuple[Any, list[np.ndarray]]], ...]


@cache
def subjects() -> dict[str, Peers]:
    """The kernels with small tiles, two launches each."""

    def gather(rows: int, k: int, **form: Any) -> Callable[..., tuple[Any, list[np.ndarray]]]:
        def run(**options: Any) -> tuple[Any, list[np.ndarray]]:
            report, _, (kept, _) = scaled.gather(2, rows, 96, k, scaled.ROW, keep=True, calls=2, **form, **options)
            return replace(report, outputs=(*report.outputs, kept)), []

        return run

    def copied(text: str | None = None, **options: Any) -> tuple[Any, list[np.ndarray]]:
        return plain.run_copied(2, 80, 96, DEEP, text, calls=2, **options)[1], []

    def scatter(**options: Any) -> tuple[Any, list[np.ndarray]]:
        return scaled.scatter(2, 80, 96, DEEP, scaled.ROW, calls=2, **options)[0], []

    def moe(*case: Any, n: int = experts.N) -> Callable[..., tuple[Any, list[np.ndarray]]]:
        return lambda **options: experts.Case(*case, n=n).run(calls=2, **options)

    def summed(form: str) -> Callable[..., tuple[Any, list[np.ndarray]]]:
        def run(**options: Any) -> tuple[Any, list[np.ndarray]]:
            sizes = (8, 5 * 128, 200)  # a CTA of four has two tiles; the ring of two stages turns over
            report, _, records = all_reduce.run(SUMMED, 2, *sizes, form=form, calls=4, **options)
            return report, records

        return run

    gathers = (
        gather(80, DEEP),
        gather(128, 64),  # a warp's last rows of a tile are some: nothing else tells of them
    )
    routings = (
        moe(2, [1, 1], 64, 2, "one expert", n=64),  # CTAs without a tile
        moe(2, [6, 5], 64, 2, n=64),  # more experts than a warp has lanes; a CTA has several tiles
        moe(2, [40, 30], 4, 2),  # tiles of several warps' rows
    )

    return {
        "expert parallel": Peers(_module(experts.built(2, 2)), routings),
        "all-gather": Peers(
            _module(scaled.built("all-gather", 2, scaled.ROW, replicated=False, keep=True, by="push")), gathers
        ),
        plain.BY_TMA: Peers(
            _module(scaled.built("all-gather", 2, scaled.ROW, replicated=False, keep=True, **BY_TMA)),
            # a chunk is signalled while another one is sent, of a CTA's last four segments too
            (gather(20, 4 * DEEP, **BY_TMA), gather(4, 4 * DEEP, **BY_TMA)),
        ),
        plain.COPIED: Peers(_module(plain.built(plain.COPIED, 2)), (copied,)),
        "reduce-scatter": Peers(_module(scaled.built("reduce-scatter", 2, scaled.ROW, mean=False)), (scatter,)),
        **{
            name: Peers(_module(all_reduce.built(SUMMED, 2, form)), (summed(form),))
            for name, form in zip(SUMS, FORMS, strict=True)
        },
    }


def _module(kernel: Any) -> asm.nodes.Module:
    return asm.parse(kernel.ptx())


def mutants_of(subject: Peers) -> Iterator[Mutant]:
    """All mutants, including those of signals between GPUs."""
    return mutate.mutants(subject.module, mutations=(*MUTATIONS, *PEER_MUTATIONS), orders={**ORDERS, **PEER_ORDERS})


def judge(name: str, subject: Peers, mutant: Mutant, healthy: list[tuple[Any, int]]) -> Verdict:
    """Run a mutant on each problem, under one schedule after the other, until something is found. healthy: the
    unchanged kernel's reports, by problem, and the limit of steps."""
    head, text = (mutant.kind, mutant.site, mutant.variant), mutant.module.to_text(line_info=True)
    for schedule, seed in SCHEDULES:
        for run, (right, steps) in zip(subject.runs, healthy, strict=True):
            try:
                report, records = run(text=text, schedule=schedule, seed=seed, max_steps=steps)
            except EmulationError as error:
                return Verdict(*head, "found", type(error).__name__)
            named = [each.rule for each in report.findings if each.severity != "performance"]
            if named:
                return Verdict(*head, "found", named[0])
            if any(timeout_record.timed_out(record) for record in records):
                return Verdict(*head, "found", "given-up")
            if _bits(report) != _bits(right):
                return Verdict(*head, "found", "wrong-result")
            if _equivalent(name, mutant):
                return Verdict(*head, "equivalent", _equivalent(name, mutant))
    return Verdict(*head, "missed")


def _equivalent(name: str, mutant: Mutant) -> str:
    """Why a mutant is equivalent to its kernel, or nothing."""
    place = (name, mutant.kind, mutant.site)
    return next((reason for *known, reason in EQUIVALENT if tuple(known) == place), "")


def _bits(report: Any) -> list[bytes]:
    """A digest of all results of all GPUs."""
    return [np.ascontiguousarray(each).tobytes() for output in report.outputs for each in output]


def judged(name: str, some: list[Mutant]) -> list[Verdict]:
    """The verdicts on some mutants of a kernel."""
    subject = subjects()[name]
    healthy = []
    for run in subject.runs:
        reports = [run(schedule=schedule, seed=seed) for schedule, seed in SCHEDULES[:2]]
        for report, records in reports:
            assert not [each for each in report.findings if each.severity != "performance"], report.findings
            assert not any(timeout_record.timed_out(record) for record in records)
        most = max(report.counters.instructions for report, _ in reports)
        healthy.append((reports[0][0], LONGER * most))
    verdicts = []
    for mutant in some:
        verdicts.append(judge(name, subject, mutant, healthy))
        if verdicts[-1].outcome == "missed":
            print("   ", mutant.kind, mutant.site, mutant.variant, mutant.what, flush=True)
    return verdicts


def drawn(name: str, sample: int) -> dict[str, Any]:
    """A kernel's row: the verdicts on a sample of its mutants."""
    every = list(mutants_of(subjects()[name]))
    verdicts = judged(name, random.Random(0).sample(every, min(sample, len(every))))
    return {**row(name, verdicts), "of": len(every), "seed": 0, "devices": 2}


def again(old: dict[str, Any]) -> dict[str, Any]:
    """A kernel's row with new verdicts on the mutants that were missed."""
    missed = [each for each in mutants_of(subjects()[old["kernel"]]) if _named(each) in old["missed"]]
    if len(missed) != len(old["missed"]):
        raise SystemExit(f"{old['kernel']} has other mutants than when the file was written: draw them anew")
    if not missed:
        return old
    new = row(old["kernel"], judged(old["kernel"], missed))
    return {
        **old, "found": old["found"] + new["found"], "equivalent": old["equivalent"] + new["equivalent"],
        "as_good": {**old["as_good"], **new["as_good"]}, "missed": new["missed"],
        "by": dict((Counter(old["by"]) + Counter(new["by"])).most_common()),
    }  # fmt: skip


def _named(mutant: Mutant) -> str:
    """The names of missed mutants as rows have them."""
    return f"{mutant.kind} at {mutant.site}, {mutant.variant}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--kernel", choices=list(subjects()))
    parser.add_argument("--sample", type=int, default=SAMPLE)
    parser.add_argument("--missed", action="store_true")
    options = parser.parse_args()
    for name in [options.kernel] if options.kernel else subjects():
        before = json.loads(FILE.read_text()) if FILE.exists() else {"rows": []}
        known = {old["kernel"]: old for old in before["rows"]}
        if options.missed and name not in known:
            raise SystemExit(f"{name} is not in {FILE.name}")
        known[name] = new = again(known[name]) if options.missed else drawn(name, options.sample)
        if not options.missed:
            new["command"] = f"python -m benchmarks.mutants_peers --sample {options.sample}"
        print(name, new["found"], "found,", new["equivalent"], "equivalent,", new["missed"], flush=True)
        rows = [known[kernel] for kernel in subjects() if kernel in known]
        FILE.parent.mkdir(exist_ok=True)
        evidence = {"suite": "mutants-peers", "command": "python -m benchmarks.mutants_peers", "rows": rows}
        FILE.write_text(json.dumps(evidence, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
