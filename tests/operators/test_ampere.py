"""GPUs before Hopper: the Ampere kernel multiplies, array operations do the rest. Tried in the emulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.operators.test_matmul import assert_close, draw, laid_out
from warploom.errors import ArgumentTypeError
from warploom.operators.execute import compute
from warploom.operators.families.ampere import Binder
from warploom.operators.request import read

BF16 = ml_dtypes.bfloat16

pytestmark = pytest.mark.filterwarnings("ignore::warploom.errors.CopyWarning")


def ampere(a, b, **options):
    request = read(a, b, options)
    return compute(request, Binder(request), options.get("out"), None).result


@pytest.mark.parametrize("layouts", [("rows", "columns"), ("columns", "rows"), ("anywhere", "gaps")])
@pytest.mark.parametrize("m, n, k", [(1, 8, 16), (130, 24, 64), (17, 19, 21)])
def test_layouts_and_odd_sizes_are_copied_into_what_the_kernel_takes(layouts, m, n, k):
    rng = np.random.default_rng(m)
    a, b = laid_out(draw(rng, (m, k), BF16), layouts[0]), laid_out(draw(rng, (k, n), BF16), layouts[1])
    assert_close(ampere(a, b), a, b)


def test_the_end_is_done_behind_the_kernel():
    rng = np.random.default_rng(0)
    a, b = draw(rng, (16, 32), BF16), draw(rng, (32, 24), BF16)
    bias, gate, c = draw(rng, (24,), BF16), draw(rng, (16, 24), BF16), draw(rng, (16, 24), BF16)
    result = ampere(a, b, alpha=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0)
    assert_close(result, a, b, scale=0.5, bias=bias, activation="silu", gate=gate, c=c, beta=2.0)
    row = draw(rng, (16, 1), BF16)
    assert_close(ampere(a, b, bias=row, out_dtype=np.float32), a, b, bias=row)


def test_a_batch_and_leading_rows():
    rng = np.random.default_rng(1)
    a, b = draw(rng, (3, 8, 32), BF16), draw(rng, (3, 32, 16), BF16)
    result = ampere(a, b)
    for each in range(3):
        assert_close(result[each], a[each], b[each])
    flat = ampere(a, b[0])
    assert flat.shape == (3, 8, 16)
    assert_close(flat.reshape(24, 16), a.reshape(24, 32), b[0])


def test_other_types_are_refused_with_what_there_is():
    with pytest.raises(ArgumentTypeError, match="before Hopper") as caught:
        ampere(np.zeros((8, 16), np.float16), np.zeros((16, 8), np.float16))
    assert "bf16 x bf16" in str(caught.value)
