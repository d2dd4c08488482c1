"""The estimates for attention before it runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests import command_line
from tests.errors import refused
from warploom.lab.attention_explanation import AttentionProblem, explain_attention, problem_of


@pytest.mark.parametrize("queries, keys", [(5, 5), (3, 9), (9, 3), (1, 1)])
def test_masked_scores_are_not_counted(queries: int, keys: int):
    i, j = np.indices((queries, keys))
    seen = int((j <= i + keys - queries).sum())
    assert AttentionProblem(2, 3, queries, 64, 3, keys, causal=True).scores == 6 * seen
    assert AttentionProblem(2, 3, queries, 64, 3, keys).scores == 6 * i.size


def test_few_queries_of_long_sequences_are_bound_by_memory_and_long_ones_by_the_tensor_cores():
    decode = explain_attention(problem_of("16x32x1x128", kv_heads=8, keys=8192))
    assert (decode.kernel, decode.bound, decode.blocks) == ("attention_decode", "memory", 16 * 8 * 128)
    forward = explain_attention(problem_of("4x16x4096x128", causal=True))
    assert (forward.kernel, forward.bound, forward.blocks) == ("attention", "tensor cores", 64 * 32)
    narrow = explain_attention(problem_of("4x16x4096x64"))
    assert narrow.roofs_us["exp2"] == pytest.approx(narrow.roofs_us["tensor cores"])


@pytest.mark.parametrize(
    "shape, more", [("4x16x64", {}), ("4x16x0x64", {}), ("4x16xax64", {}), ("4x16x8x60", {}),
                    ("4x16x8x64", {"kv_heads": 3}), ("4x16x8x64", {"keys": -1})],
)  # fmt: skip
def test_sizes_that_are_none_are_refused(shape: str, more: dict[str, int]):
    with refused("argument"):
        problem_of(shape, **more)
    with refused("argument"):
        explain_attention(problem_of("1x1x8x64"), "A100")


def test_the_command_prints_it():
    done = command_line.run("explain", "--attention", "16x32x1x128", "--kv-heads", "8", "--keys", "8192", "--json")
    assert json.loads(done.stdout)["bound"] == "memory"
