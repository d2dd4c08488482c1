"""The timing of tcgen05: products by columns, tensor memory by lanes, none of it through L2."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from warploom.kernels.blackwell import gemm, specialised
from warploom.kernels.blackwell.description import Config
from warploom.lang import Kernel
from warploom.timing.timeline import MATRIX, Timeline


def timeline(kernel: Kernel, m: int, n: int, k: int) -> Timeline:
    a, b = (np.zeros((rows, k), ml_dtypes.bfloat16) for rows in (m, n))
    return kernel.trace(a, b, check=False, sass=False).timeline


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize(
    "kernel, columns",
    [
        (specialised.build(specialised.Config(tile_n=128)), 128),
        (specialised.build(), 256),
        (gemm.build(Config(tile_n=256)), 256),
    ],
    ids=["128 x 128", "128 x 256", "a pair, 256 x 256"],
)
def test_a_product_takes_half_a_clock_for_each_of_its_columns(kernel: Kernel, columns: int):
    found = list(timeline(kernel, 256, 256, 128).of_kind(MATRIX))
    assert found and {round(each.busy[1] - each.busy[0]) for each in found} == {columns // 2}


def test_products_that_are_queued_follow_each_other_without_a_gap():
    first, second, *_ = timeline(specialised.build(), 128, 256, 64).of_kind(MATRIX)
    assert second.busy[0] == pytest.approx(first.busy[1])


def test_loads_of_tensor_memory_ask_nothing_of_l2():
    a = np.zeros((128, 64), ml_dtypes.bfloat16)
    b = np.zeros((256, 64), ml_dtypes.bfloat16)
    predicted = specialised.build().predict(a, b)
    assert predicted.l2_bytes == a.nbytes + b.nbytes
