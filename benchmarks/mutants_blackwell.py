"""Whether the sanitizer finds what is wrong with a Blackwell kernel: mutants of `kernels/blackwell`, by emulation.

    python -m benchmarks.mutants_blackwell [--kernel NAME] [--sample N]

A mutant counts as found where the run ends in an error or has a finding that the kernel itself has not. Those that
are as good as their kernel stand in `EQUIVALENT`, each with the edge that makes it so. Without `--sample` each kernel's
row goes into benchmarks/results/emulated/mutants-blackwell.json as it is done.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
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
from warploom.kernels.blackwell import block_scaled, gemm, minimal, specialised
from warploom.runtime import B200

FILE = Path(__file__).parent / "results" / "emulated" / "mutants-blackwell.json"
SCHEDULES = (("lazy", 0), ("random", 0), ("starve", 1), ("eager", 0), ("starve", 102), ("random", 1), ("pct", 0))

IN_CTA = "the barriers are used by threads of the CTA and by its own copies: bar.sync orders their initialisation"
CLUSTER = "barrier.cluster.arrive.release orders the initialisation by itself"
CONVERGES = "it only brings the threads of the warp together; nothing passes between them here"
OPERATIONS = "what passes is that loads of tensor memory are done, and that is known behind an arrival of any scope"
BY_OTHERS = "the load thread's fence, which this arrival happens before, stands between the read and the next answer"

EQUIVALENT: tuple[tuple[str, str, str, str], ...] = (
    ("minimal", "drop-init-fence", "*", IN_CTA),
    ("specialised", "drop-init-fence", "*", IN_CTA),
    ("launch control", "drop-init-fence", "*", IN_CTA),
    ("mxfp8", "drop-init-fence", "*", IN_CTA),
    ("pair", "drop-init-fence", "*", CLUSTER),
    ("*", "drop-barrier", "bar.warp.sync#[012]", CONVERGES),
    ("pair", "narrow-scope", "mbarrier.try_wait*", OPERATIONS),
    ("pair", "narrow-scope", "mbarrier.arrive*", OPERATIONS),
    ("*", "drop-proxy-fence", "*", BY_OTHERS),
)
"""Kernel, kind of mutation, site, reason."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: "found", "equivalent" or "missed"; `by`: what was found."""

    kind: str
    site: str
    variant: int
    outcome: str
    by: str = ""


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(ml_dtypes.bfloat16)


def _scaled() -> tuple[np.ndarray, ...]:
    """Operands of mxfp8, 128 x 384 and 640 x 384, and atoms of their factors: five tiles."""
    narrow = ml_dtypes.float8_e4m3fn
    atoms = [np.full((rows, 3, 512), 127, np.uint8) for rows in (1, 5)]
    return _normal(128, 384).astype(narrow), _normal(640, 384).astype(narrow), *atoms


@cache
def subjects() -> dict[str, Subject]:
    """The kernels with small tiles, and products so deep and wide that every ring turns over."""
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
        "mxfp8": (block_scaled.build(block_scaled.Config(stages=2)), _scaled, 1),
    }  # fmt: skip
    return {
        name: replace(_subject(name.replace(" ", "_"), kernel, arguments), machine=B200(sms))
        for name, (kernel, arguments, sms) in made.items()
    }


def mutants_of(subject: Subject) -> Iterator[Mutant]:
    """All mutants, with the operators for tcgen05."""
    return mutate.mutants(
        subject.module, mutations=(*MUTATIONS, *tcgen05.MUTATIONS), orders={**ORDERS, **tcgen05.ORDERS}
    )


def judge(name: str, subject: Subject, mutant: Mutant, steps: int) -> Verdict:
    """Run a mutant under one schedule after the other until something is found."""
    head = (mutant.kind, mutant.site, mutant.variant)
    for schedule, seed in SCHEDULES:
        try:
            found = subject.run(schedule, seed, mutant.module, max_steps=steps).findings
        except EmulationError as error:
            return Verdict(*head, "found", type(error).__name__)
        named = [finding.rule for finding in found if finding.severity != "performance"]
        if named:
            return Verdict(*head, "found", named[0])
    for kernel, kind, site, _ in EQUIVALENT:
        if fnmatch(name, kernel) and kind == mutant.kind and fnmatch(mutant.site, site):
            return Verdict(*head, "equivalent")
    return Verdict(*head, "missed")


def judged(name: str, sample: int | None = None) -> list[Verdict]:
    """The verdicts on all mutants of a kernel, or on so many drawn with a fixed seed."""
    subject = subjects()[name]
    healthy = subject.run("lazy", 0)
    assert healthy.findings == [], healthy.findings
    every = list(mutants_of(subject))
    if sample is not None:
        every = random.Random(0).sample(every, min(sample, len(every)))
    return [judge(name, subject, mutant, 40 * healthy.counters.instructions) for mutant in every]


def row(name: str, verdicts: list[Verdict]) -> dict[str, Any]:
    """One kernel's row of the file."""
    total = Counter(verdict.outcome for verdict in verdicts)
    return {
        "kernel": name, "mutants": len(verdicts), "found": total["found"], "equivalent": total["equivalent"],
        "missed": [f"{v.kind} at {v.site}, {v.variant}" for v in verdicts if v.outcome == "missed"],
        "kinds": dict(sorted(Counter(v.kind for v in verdicts).items())),
        "by": dict(Counter(v.by for v in verdicts if v.by).most_common()),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--kernel")
    parser.add_argument("--sample", type=int)
    options = parser.parse_args()
    rows = json.loads(FILE.read_text())["rows"] if FILE.exists() else []
    for name in [options.kernel] if options.kernel else subjects():
        new = row(name, judged(name, options.sample))
        print(name, new["found"], "found,", new["equivalent"], "equivalent,", new["missed"], flush=True)
        if options.sample is None:
            rows = [*(old for old in rows if old["kernel"] != name), new]
            FILE.parent.mkdir(exist_ok=True)
            command = "python -m benchmarks.mutants_blackwell"
            FILE.write_text(
                json.dumps({"suite": "mutants-blackwell", "command": command, "rows": rows}, indent=1) + "\n"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
