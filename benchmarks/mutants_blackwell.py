"""Measure how many mutants of `kernels/blackwell` the sanitizer finds, by emulation.

    python -m benchmarks.mutants_blackwell [--kernel NAME] [--sample N]

A mutant counts as found if the run ends in an error, has a finding that the kernel itself does not have, or leaves
other bits in memory ("wrong-result"). Mutants that are as correct as their kernel are listed in `EQUIVALENT`, each by
its place. Without `--sample` each kernel's row goes into benchmarks/results/emulated/mutants-blackwell.json.
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

import ml_dtypes
import numpy as np

from benchmarks.zoo import mutate, tcgen05
from benchmarks.zoo.kernels import Subject, _subject
from benchmarks.zoo.mutate import Mutant
from benchmarks.zoo.mutations import MUTATIONS, ORDERS
from warploom.errors import EmulationError
from warploom.kernels.blackwell import attention, block_scaled, gemm, grouped, minimal, small_m, specialised
from warploom.kernels.blackwell.attention_config import Config as AttentionConfig
from warploom.kernels.blackwell.description import Config, SmallMConfig
from warploom.kernels.hopper.attention_config import Attention
from warploom.runtime import B200

FILE = Path(__file__).parent / "results" / "emulated" / "mutants-blackwell.json"
SCHEDULES = (("lazy", 0), ("random", 0), ("starve", 1), ("eager", 0), ("starve", 102), ("random", 1), ("pct", 0))

IN_CTA = "the barriers are used by threads of the CTA and by its own copies: bar.sync orders their initialisation"
CLUSTER = "barrier.cluster.arrive.release orders the initialisation by itself"
CONVERGES = "it only brings the threads of the warp together; nothing passes between them here"
COLLECTIVE = "what the warp tells of are its own tcgen05 loads and stores, whose wait all lanes execute together"
IN_LEADER = "the multiply thread and the barrier are both in the leader: the scope of a CTA is enough"
AT_THE_END = "the memory has been read (wait_group.read before); that the bytes are written is known when the grid ends"
ONE_TILE = "a CTA has one tile, so that nobody gives its accumulator back: the wait for an empty one passes at once"
ANY_SCOPE = "what comes are bytes of st.async: as of any copy, the phase says that they are written, at every scope"
OWN_COLUMNS = "nobody uses `drained`, which is for a P that has the columns of S"
TWO_STRANDS = "a block has two tiles of queries and their ring two stages: the first is always in stage 0"
OF_QUERIES = "it tells that queries have been read, and the product that it now precedes reads none"
NOTHING_YET = "no operation on tensor memory comes before it: it stands at the barrier behind tcgen05.alloc"
TOLD_TWICE = "`stored` and then `ready` tell of the loads of O, each with a fence, before a product writes O"
USED_AT_ONCE = "the next instruction uses what is loaded, and so stands until it is; a later wait tells of it"

EQUIVALENT: tuple[tuple[str, str, str, str], ...] = (
    *((name, "drop-init-fence", "fence.mbarrier_init.release.cluster#0", CLUSTER if name == "pair" else IN_CTA)
      for name in ("minimal", "specialised", "launch control", "pair", "mxfp8", "attention", "grouped")),
    *((name, "drop-barrier", f"bar.warp.sync#{number}", CONVERGES)
      for name, numbers in (("specialised", (0, 1)), ("launch control", (1, 2)), ("pair", (1, 2)), ("mxfp8", (0, 1)),
                            ("attention", (0, 1, 2)), ("grouped", (0, 1)), ("few rows", (0, 1)))
      for number in numbers),
    ("pair", "narrow-scope", "mbarrier.arrive.release.cluster.shared::cluster.b64#1", IN_LEADER),
    *(("attention", "drop-barrier", f"bar.warp.sync#{number}", COLLECTIVE) for number in (3, 4, 6, 8, 13, 15)),
    *(("few rows", kind, f"{instruction}#{number}", ONE_TILE) for kind, instruction, number in (
        ("change-count", "mbarrier.init.shared::cta.b64", 5),
        ("drop-wait", "mbarrier.try_wait.parity.shared::cta.b64", 1),
        ("drop-wait-loop", "mbarrier.try_wait.parity.shared::cta.b64", 1),
    )),
    *(("few rows", "narrow-scope", f"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64#{number}", ANY_SCOPE)
      for number in (0, 1)),
    *(("attention", kind, "cp.async.bulk.wait_group#0", AT_THE_END)
      for kind in ("wait-for-less", "drop-store-wait", "wait-for-reads-only")),
    *(("attention", "change-count", f"mbarrier.init.shared::cta.b64#{number}", OWN_COLUMNS) for number in (14, 15)),
    *((name, "drop-tensor-wait", f"tcgen05.wait::ld.sync.aligned#{number}", USED_AT_ONCE)
      for name, numbers in (("attention", (4, 5, 6)), ("mxfp8", (0, 1, 2))) for number in numbers),
    *((name, "drop-tensor-fence", f"tcgen05.fence::{side}_thread_sync#0", NOTHING_YET)
      for name in ("minimal", "specialised", "launch control", "pair", "attention", "mxfp8", "grouped", "few rows")
      for side in ("before", "after")),
    ("few rows", "drop-tensor-fence", "tcgen05.fence::after_thread_sync#1", ONE_TILE),
    *(("attention", "drop-tensor-fence", f"tcgen05.fence::before_thread_sync#{number}", TOLD_TWICE)
      for number in (1, 2, 5, 6)),
    ("attention", "ring-length", "setp.eq.u32#10", TWO_STRANDS),
    ("attention", "tensor-commit-too-early",
     "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64#9", OF_QUERIES),
)  # fmt: skip
"""Kernel, kind of mutation, site, reason."""


@dataclass(frozen=True)
class Verdict:
    """The verdict on a mutant: "found", "equivalent" or "missed"; `by`: what was found, or why it is equivalent."""

    kind: str
    site: str
    variant: int
    outcome: str
    by: str = ""


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)


def _scaled() -> tuple[np.ndarray, ...]:
    """Operands of mxfp8, 128 x 384 and 640 x 384, with atoms of their scale factors: five tiles."""
    narrow = ml_dtypes.float8_e4m3fn
    atoms = [np.full((rows, 3, 512), 127, np.uint8) for rows in (1, 5)]
    return _normal(128, 384).astype(narrow), _normal(640, 384).astype(narrow), *atoms


def _heads(keys: int = 150) -> tuple[Any, ...]:
    """Two heads of 130 queries and 150 keys, whose scores grow from tile to tile: a CTA has two blocks of three tiles,
    and O is rescaled. Then the scale and the section."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, rows, 2, 64)).astype(ml_dtypes.bfloat16) for rows in (130, keys, keys))
    q[..., 0], k[..., 0] = 8, (np.arange(keys)[::-1] // 64 * 8)[None, :, None]
    return q, k, v, np.float32(0.18), np.uint32(1)


def _groups() -> tuple[Any, ...]:
    """Groups of 200, 0 and 60 rows, each with a matrix of 40 rows: a CTA has tiles of several groups. Then their ends,
    and D."""
    ends = np.array([200, 200, 260], np.int32)
    return _normal(260, 320), _normal(3 * 40, 320), ends, np.zeros((260, 40), ml_dtypes.bfloat16)


@cache
def subjects() -> dict[str, Subject]:
    """The kernels with small tiles, and problems so deep and wide that every ring wraps around."""
    made: dict[str, tuple[Any, Callable[[], tuple[Any, ...]], int]] = {
        "minimal": (minimal.build(minimal.Config(tile_n=32)), lambda: (_normal(128, 136), _normal(32, 136)), 2),
        "specialised": (
            specialised.build(specialised.Config(tile_n=32, stages=2)),
            lambda: (_normal(640, 320), _normal(64, 320)), 2,
        ),
        "launch control": (
            gemm.build(gemm.Config(tile_m=128, tile_n=32, stages=2)),
            lambda: (_normal(640, 320), _normal(64, 320)), 2,
        ),
        "pair": (
            gemm.build(gemm.Config(tile_n=32, stages=2)), lambda: (_normal(1280, 320), _normal(64, 320)), 4,
        ),
        "attention": (
            attention.build(Attention(head_dim=64, value_dim=64), AttentionConfig(tile_n=64, stages=3)), _heads, 1,
        ),
        "mxfp8": (block_scaled.build(block_scaled.Config(stages=2)), _scaled, 1),
        "grouped": (grouped.build(config=Config(128, 32, 2), limits="offsets"), _groups, 1),
        "few rows": (small_m.build(SmallMConfig(16, 2, 2)), lambda: (_normal(20, 640), _normal(130, 640)), 8),
    }  # fmt: skip
    more = {"attention": (lambda: _heads(keys=40), lambda: _heads(keys=100))}
    return {
        name: replace(
            _subject(name.replace(" ", "_"), kernel, arguments),
            machine=B200(sms), more=more.get(name, ()),
        )
        for name, (kernel, arguments, sms) in made.items()
    }  # fmt: skip


def mutants_of(subject: Subject) -> Iterator[Mutant]:
    """All mutants, including the mutations for tcgen05."""
    return mutate.mutants(
        subject.module, mutations=(*MUTATIONS, *tcgen05.MUTATIONS), orders={**ORDERS, **tcgen05.ORDERS}
    )


def judge(name: str, subject: Subject, mutant: Mutant, healthy: list[Any]) -> Verdict:
    """Run a mutant on each problem, under one schedule after the other, until something is found. healthy: the reports
    of the unchanged kernel, by problem."""
    head = (mutant.kind, mutant.site, mutant.variant)
    for schedule, seed in SCHEDULES:
        for problem, right in enumerate(healthy):
            steps = 40 * right.counters.instructions
            try:
                report = subject.run(schedule, seed, mutant.module, problem, max_steps=steps)
            except EmulationError as error:
                return Verdict(*head, "found", type(error).__name__)
            named = [finding.rule for finding in report.findings if finding.severity != "performance"]
            if named:
                return Verdict(*head, "found", named[0])
            pairs = zip(report.outputs, right.outputs, strict=True)
            if any(np.asarray(one).tobytes() != np.asarray(other).tobytes() for one, other in pairs):
                return Verdict(*head, "found", "wrong-result")
    for kernel, kind, site, reason in EQUIVALENT:
        if (name, mutant.kind, mutant.site) == (kernel, kind, site):
            return Verdict(*head, "equivalent", reason)
    return Verdict(*head, "missed")


def judged(name: str, sample: int | None = None) -> list[Verdict]:
    """The verdicts on all mutants of a kernel, or on a sample drawn with a fixed seed."""
    subject = subjects()[name]
    healthy = [subject.run("lazy", 0, problem=problem) for problem in subject.problems]
    for report in healthy:
        assert report.findings == [], report.findings
    every = list(mutants_of(subject))
    if sample is not None:
        every = random.Random(0).sample(every, min(sample, len(every)))
    return [judge(name, subject, mutant, healthy) for mutant in every]


def row(name: str, verdicts: list[Verdict]) -> dict[str, Any]:
    """One kernel's row of the file."""
    total = Counter(verdict.outcome for verdict in verdicts)
    return {
        "kernel": name, "mutants": len(verdicts), "found": total["found"], "equivalent": total["equivalent"],
                "as_good": {f"{v.kind} at {v.site}": v.by for v in verdicts if v.outcome == "equivalent"},
        "missed": [f"{v.kind} at {v.site}, {v.variant}" for v in verdicts if v.outcome == "missed"],
        "kinds": dict(sorted(Counter(v.kind for v in verdicts).items())),
        "by": dict(Counter(v.by for v in verdicts if v.outcome == "found").most_common()),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--kernel")
    parser.add_argument("--sample", type=int)
    options = parser.parse_args()
    rows = {each["kernel"]: each for each in json.loads(FILE.read_text())["rows"]} if FILE.exists() else {}
    for name in [options.kernel] if options.kernel else subjects():
        new = row(name, judged(name, options.sample))
        print(name, new["found"], "found,", new["equivalent"], "equivalent,", new["missed"], flush=True)
        if options.sample is None:
            rows[name] = new
            FILE.parent.mkdir(exist_ok=True)
            kept = {"suite": "mutants-blackwell", "command": "python -m benchmarks.mutants_blackwell"}
            FILE.write_text(json.dumps(kept | {"rows": [*rows.values()]}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
