"""The reference texts, right on an H200, are right in the emulator: any size, and the same bits by any schedule."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tests.foreign.reference_kernels import DECODE, FOLDER, LARGE, Decode, Large, Problem, block_scaled
from tests.thinning import SCHEDULES
from warploom.errors import DeadlockError
from warploom.runtime import emulate, launch_file

HALF_UNIT = 2.0**-8
"""Half a unit in the last place of bf16, relative."""
SUM_ERROR = 2.0**-16
"""Of the largest output: what summing in float32 may add."""


def run(kernel: Large | Decode, problem: Problem, schedule: str = "lazy", seed: int = 0) -> np.ndarray:
    emulate(kernel.text, *problem.arguments, **problem.launch, check=False, schedule=schedule, seed=seed)
    return problem.output


def assert_product(got: np.ndarray, expected: np.ndarray) -> None:
    tolerance = HALF_UNIT * 1.01 * np.abs(expected) + SUM_ERROR * np.abs(expected).max()
    wrong = ~(np.abs(got.astype(np.float64) - expected) <= tolerance)  # NaN is wrong too
    assert not wrong.any(), f"{np.count_nonzero(wrong)} of {wrong.size} wrong, the first at {np.argwhere(wrong)[0]}"


@functools.cache
def lazy_bits(kernel: Large | Decode, *shape: int) -> np.ndarray:
    return run(kernel, kernel.problem(*shape)).view(np.uint16)


def names(kernel: Large | Decode) -> str:
    return kernel.name


large = pytest.mark.parametrize("kernel", LARGE, ids=names)
decode = pytest.mark.parametrize("kernel", DECODE, ids=names)
schedules = pytest.mark.parametrize("schedule, seed", SCHEDULES)


@pytest.mark.sample(3, all=4)
@large
@pytest.mark.parametrize("more_steps", [0, 1, 4])
def test_one_tile_of_few_k_tiles(kernel: Large, more_steps: int) -> None:
    m, n = kernel.unit
    problem = kernel.problem(m, n, (kernel.least_steps + more_steps) * kernel.tile[2], clusters=1)
    assert_product(run(kernel, problem), problem.expected)


@pytest.mark.sample(3, all=4)
@large
@pytest.mark.parametrize("m, n, k", [(8, 8, -48), (-40, -24, 16), (-136, 16, 48)])
def test_ragged_edges_are_zero_filled_and_clipped(kernel: Large, m: int, n: int, k: int) -> None:
    """Sizes a little above or below whole tiles, so that some CTAs have nothing to do."""
    rows, columns = kernel.unit
    problem = kernel.problem(rows + m, columns + n, 3 * kernel.tile[2] + k, clusters=1)
    assert_product(run(kernel, problem), problem.expected)


@pytest.mark.sample(2)
@large
@pytest.mark.parametrize("clusters", [1, 3, 4])
def test_persistent_clusters_share_the_tiles(kernel: Large, clusters: int) -> None:
    rows, columns = kernel.unit
    problem = kernel.problem(2 * rows, 2 * columns, 3 * kernel.tile[2], clusters)
    assert_product(run(kernel, problem), problem.expected)


@pytest.mark.sample(2, all=3)
@large
@schedules
def test_every_schedule_gives_the_same_bits(kernel: Large, schedule: str, seed: int) -> None:
    rows, columns = kernel.unit
    shape = (2 * rows - 40, columns - 24, 3 * kernel.tile[2] + 16, 1)
    got = run(kernel, kernel.problem(*shape), schedule, seed)
    assert np.array_equal(got.view(np.uint16), lazy_bits(kernel, *shape))


@pytest.mark.parametrize("kernel", [kernel for kernel in LARGE if kernel.least_steps > 1], ids=names)
def test_fewer_k_tiles_than_the_loop_takes_is_a_deadlock(kernel: Large) -> None:
    """The loops of these texts run at least once: with too small a K a consumer waits for a stage nobody fills."""
    rows, columns = kernel.unit
    problem = kernel.problem(2 * rows, columns, (kernel.least_steps - 1) * kernel.tile[2], clusters=1)
    with pytest.raises(DeadlockError) as caught:
        run(kernel, problem)
    assert any(wait.missing.startswith("1 of 1 ") for wait in caught.value.waits)


@decode
@pytest.mark.parametrize("below, n, k", [(0, 64, 3200), (3, 192, 1536), (7, 128, 256), (2, 128, 400)])
def test_few_rows(kernel: Decode, below: int, n: int, k: int) -> None:
    problem = kernel.problem(kernel.rows - below, n, k)
    assert_product(run(kernel, problem), problem.expected)


@pytest.mark.sample(1, full=6)
@decode
@schedules
def test_every_schedule_gives_few_rows_the_same_bits(kernel: Decode, schedule: str, seed: int) -> None:
    shape = (5, 192, 2000)
    got = run(kernel, kernel.problem(*shape), schedule, seed)
    assert np.array_equal(got.view(np.uint16), lazy_bits(kernel, *shape))


@pytest.mark.parametrize("text", sorted(FOLDER.glob("*.ptx")), ids=lambda path: path.stem)
def test_the_launch_description_beside_the_text_is_a_right_launch(text: Path) -> None:
    description = launch_file.read(launch_file.beside(text))
    program = description.program(text.read_text(), text.name)
    arguments = dict(zip((p.name for p in program.parameters), description.arguments(program), strict=True))
    emulate(program, *arguments.values(), check=False)
    host = {name: value.array.host for name, value in arguments.items() if name.startswith("tm")}
    if "tmX" in host:
        assert_product(arguments["p_C"], host["tmX"].astype(np.float64) @ host["tmW"].astype(np.float64).T)
        return
    if "block" in text.stem:
        expected = block_scaled(host["tmA"], host["tmB"], arguments["p_sa"], arguments["p_sb"])
    else:
        scale = float(arguments["p_sa"][0] * arguments["p_sb"][0]) if "p_sa" in arguments else 1.0
        expected = scale * (host["tmA"].astype(np.float64) @ host["tmB"].astype(np.float64).T)
    assert_product(host["tmC"], expected)
