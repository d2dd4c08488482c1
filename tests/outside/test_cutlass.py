"""CUTLASS's CuTe tutorials for Blackwell, where WARPLOOM_OUTSIDE names a folder with a checkout `cutlass`.

nvcc compiles them here; each compares its result with a product of its own. About a minute each.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.outside import captured
from tests.outside.test_captured import runtime  # noqa: F401 - a fixture

CUTLASS = Path(os.environ.get("WARPLOOM_OUTSIDE", "/nonexistent"), "cutlass")
TUTORIALS = CUTLASS / "examples" / "cute" / "tutorial" / "blackwell"
ONE_TILE, CLUSTERS = (128, 256, 64), (512, 1024, 64)
"""M, N and K."""
MISSING_FENCE = {"generic-write-before-async-read"}
"""A true error: the threads write the operands, and no fence.proxy.async is before the matrix unit reads them."""
MILD = {"freed-columns-in-use", "cta-may-not-have-started"}
"""Warnings about the end and the beginning of clusters, for which nothing in these texts waits."""


@pytest.mark.slow
@pytest.mark.skipif(not TUTORIALS.is_dir(), reason="WARPLOOM_OUTSIDE names no folder with cutlass")
@pytest.mark.parametrize(
    ("name", "sizes", "errors"),
    [
        ("01_mma_sm100", ONE_TILE, MISSING_FENCE),
        ("02_mma_tma_sm100", ONE_TILE, set()),
        ("03_mma_tma_multicast_sm100", CLUSTERS, set()),
        ("04_mma_tma_2sm_sm100", CLUSTERS, set()),
        ("05_mma_tma_epi_sm100", CLUSTERS, set()),
    ],
)
def test_a_tutorial_is_right_and_has_the_findings_that_it_deserves(
    name: str,
    sizes: tuple[int, int, int],
    errors: set[str],
    runtime: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    program, text = captured.compiled(
        TUTORIALS / f"{name}.cu", "100a", runtime, tmp_path, [CUTLASS / "include", CUTLASS / "tools/util/include"],
        ["--expt-relaxed-constexpr", "-DCUTLASS_ARCH_MMA_SM100_SUPPORTED=1"],
    )  # fmt: skip
    found = captured.run(
        program, [text], [str(size) for size in sizes], runtime=runtime, folder=tmp_path / "launches",
        only="gemm_device", schedules="lazy:0 starve:2",
    )  # fmt: skip
    assert "Execution is successful." in found.output and found.steady
    assert len([row for row in found.rows if row["checked"]]) == 2
    assert found.of("errors") == errors
    assert found.of("warnings") <= MILD
