"""Blackwell's primitives in isolation give what they must in the emulator, and bit for bit on a GPU of sm_100."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PATH = Path(__file__).resolve().parents[2] / "examples" / "blackwell" / "primitives.py"


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("blackwell_primitives", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


MODULE = _load()
primitives = pytest.mark.parametrize("primitive", MODULE.PRIMITIVES, ids=lambda primitive: primitive.name)


@primitives
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_a_primitive_gives_what_it_must(primitive: Any, schedule: str):
    report = primitive.kernel.emulate(out=np.zeros_like(primitive.expected), schedule=schedule)
    np.testing.assert_array_equal(report.outputs[-1], primitive.expected)
    assert [finding.rule for finding in report.findings if finding.severity != "performance"] == []


@primitives
def test_it_assembles_without_a_spill(primitive: Any):
    assert primitive.kernel.resources().spill_stores == 0


@pytest.mark.gpu
@pytest.mark.blackwell
@primitives
def test_a_gpu_gives_the_same(primitive: Any):
    torch = pytest.importorskip("torch")
    if torch.cuda.get_device_capability()[0] != 10:
        pytest.skip("the GPU is not one of sm_100")
    out = torch.zeros(primitive.expected.shape, dtype=getattr(torch, str(primitive.expected.dtype)), device="cuda")
    primitive.kernel(out=out)
    torch.cuda.synchronize()
    np.testing.assert_array_equal(out.cpu().numpy(), primitive.expected)
