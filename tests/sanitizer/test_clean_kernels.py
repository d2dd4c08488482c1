"""The sanitizer reports nothing in correct kernels: the package's, the examples.

For those of compilers and prototypes, see tests/foreign/test_sanitizer_findings.py.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from benchmarks import warp_specialised
from benchmarks.zoo import subjects
from tests.sanitizer.running import SCHEDULES
from warploom.cli import find
from warploom.cli.check import examples
from warploom.kernels import ladder, walkthrough
from warploom.runtime import emulate
from warploom.sanitizer import EXPLORED

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if "def example(" in path.read_text())
schedules = pytest.mark.parametrize(("schedule", "seed"), SCHEDULES, ids=[f"{name}-{seed}" for name, seed in SCHEDULES])


def errors(program, *arguments, schedule: str = "lazy", seed: int = 0) -> list:
    report = emulate(program, *arguments, check=True, schedule=schedule, seed=seed)
    return [finding for finding in report.findings if finding.severity == "error"]


def normal(*shape: int, dtype: type = ml_dtypes.bfloat16) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.sample(18)
@schedules
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples(path: Path, schedule: str, seed: int):
    module = find.load(path)
    for example in examples(module, find.kernels_of(module)):
        assert errors(example.kernel, *example.arguments, schedule=schedule, seed=seed) == []


@schedules
def test_the_walkthrough(schedule: str, seed: int):
    kernel = walkthrough.build_gemm_m64n64(64, 128, 96)
    assert errors(kernel, normal(64, 96), normal(96, 128), schedule=schedule, seed=seed) == []


@schedules
def test_the_warp_specialised_kernel(schedule: str, seed: int):
    kernel = warp_specialised.build()
    assert errors(kernel, normal(128, 512), normal(256, 512), schedule=schedule, seed=seed) == []


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random"])
@pytest.mark.parametrize("rung", ladder.RUNGS, ids=lambda rung: rung.module)
def test_the_ladder(rung: ladder.Rung, schedule: str):
    """Larger than in tests/kernels/test_ladder.py: the ring wraps around several times."""
    dtype = np.float32 if rung.dtype.name == "f32" else ml_dtypes.bfloat16
    m, n, k = (64, 64, 64) if rung.number < 5 else (256, 256, 256) if rung.number < 12 else (512, 512, 384)
    b = normal(k, n, dtype=dtype) if rung.layout == "NN" else normal(n, k, dtype=dtype)
    assert errors(rung.build(), normal(m, k, dtype=dtype), b, schedule=schedule) == []


PARTS = 12
"""Of the zoo's kernels, which building takes too long for the collection of tests to know their names."""


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_every_kernel_under_every_pair_of_explore(part: int):
    """With several tiles for each CTA and a ring that wraps around, unlike above."""
    for subject in list(subjects().values())[part::PARTS]:
        for (schedule, seed), problem in product(EXPLORED, subject.problems):
            report = subject.run(schedule, seed, problem=problem)
            found = [finding for finding in report.findings if finding.severity == "error"]
            assert found == [], (subject.name, schedule, seed, problem)
