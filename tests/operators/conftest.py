"""CPU tensors that count as GPU tensors, with a mock driver that only logs calls (tests/driver/fake_cuda.c)."""

from __future__ import annotations

import pytest

from tests.driver.mock_gpu import IMPORTED
from warploom.operators.bind import warned

TENSORS = """
import torch, warnings
import warploom
from dataclasses import replace
from warploom.runtime import arrays
from warploom.operators.calls import CACHE
true_view = arrays._torch_view
arrays._torch_view = lambda tensor, name: replace(true_view(tensor, name), device="cuda", index=0, host=None)
torch._C._cuda_getCurrentRawStream = lambda index: stream
stream = 0x40
def bf16(*shape): return torch.randn(shape).bfloat16()
"""


@pytest.fixture
def on_gpu(pretend):
    """Run a script in which torch's CPU tensors are taken for a GPU's; gives back what the driver was asked."""
    pytest.importorskip("torch")
    return lambda script, **variables: pretend(TENSORS + script, imported=IMPORTED, **variables)


@pytest.fixture(autouse=True)
def nothing_said_before():
    """Warnings that are given once are given anew in each test."""
    warned().clear()
