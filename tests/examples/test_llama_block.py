"""The Llama block: every layer converted, the same results, prefill and decode."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def example(monkeypatch):
    """The example, imported from its file."""
    path = Path(__file__).resolve().parents[2] / "examples" / "llama_block.py"
    spec = importlib.util.spec_from_file_location("llama_block", path)
    loaded = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "llama_block", loaded)
    spec.loader.exec_module(loaded)
    return loaded


def test_the_block_runs_and_agrees_with_plain_torch(example, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["llama_block.py", "--prompt", "5"])
    example.main()
    said = capsys.readouterr().out
    assert "converted: query, key, value, project, gate, up, down" in said
    for word in ("prefill: the models differ by", "decode: the models differ by", "warploom eager", "tokens/s"):
        assert word in said


def test_a_difference_beyond_bf16_s_rounding_is_an_error(example):
    shape = example.Shape(hidden=64, heads=2, groups=1, inner=128)
    torch.manual_seed(0)
    plain = example.Block(shape, 1, 4).bfloat16()
    other = example.Block(shape, 1, 4).bfloat16()
    with torch.no_grad(), pytest.raises(AssertionError, match="the two models differ"):
        example.compare(plain, other, torch.randn(1, 3, 64).bfloat16(), 0)
