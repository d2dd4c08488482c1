"""Gradients of sequences of different lengths against the formulas in float64, clean under every schedule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kernels.attention_cases import NUMPY, Attention, operands
from tests.kernels.attention_gradients import ERROR, FILLED, exact, launch
from warploom.kernels.hopper import attention_backward_rows
from warploom.kernels.hopper.attention_backward_config import BackwardConfig, backward_config
from warploom.kernels.hopper.attention_config import LOG2_E

NARROW = Attention(head_dim=64, value_dim=64, varlen=True)
LENGTHS = [(1, 1), (63, 129), (0, 7), (65, 64), (5, 0), (130, 70)]
UNWRITTEN = 3
"""Rows after the last sequence."""
TILE = 80
SMALL = BackwardConfig(tile_m=64)


def ends_of(lengths: list[int]) -> np.ndarray:
    return np.cumsum(lengths, dtype=np.int32)


def run(
    of: Attention, lengths: list[tuple[int, int]], heads: tuple[int, int] = (2, 1),
    edges: tuple[Any, Any] = (None, None), schedule: str = "lazy", config: BackwardConfig = SMALL,
) -> tuple[list[Any], list[float], list[np.ndarray]]:  # fmt: skip
    """The reports, the relative errors of dQ, dK and dV, and those arrays. edges: last and first, of equal lengths."""
    q_ends, k_ends = (ends_of([each[at] for each in lengths]) for at in (0, 1))
    q, k, v = operands(int(q_ends[-1]) + UNWRITTEN, int(k_ends[-1]) + UNWRITTEN, of, heads)
    grad = np.random.default_rng(7).standard_normal((*q.shape[:3], of.value_dim)).astype(NUMPY[of.dtype.name])
    wanted = [np.zeros(x.shape) for x in (q, k, v)]
    out, lse = np.zeros(grad.shape), np.zeros((1, heads[0], q.shape[1]), np.float32)
    for (rows, keys), row, key in zip(lengths, q_ends, k_ends, strict=True):
        mine, theirs = slice(row - rows, row), slice(key - keys, key)
        if not rows or not keys:
            lse[:, :, mine] = -np.inf
            continue
        last, first = (None if edge is None else edge + keys - rows for edge in edges)
        found = exact(q[:, mine], k[:, theirs], v[:, theirs], grad[:, mine], last, first)
        wanted[0][:, mine], wanted[1][:, theirs], wanted[2][:, theirs], out[:, mine] = found[:4]
        lse[:, :, mine] = found[4]
    numbers = {"scale": of.head_dim**-0.5 * LOG2_E, "factor": of.head_dim**-0.5}
    numbers |= {name: edge for name, edge in zip(("last", "first"), edges, strict=True) if edge is not None}
    results = out.astype(q.dtype), grad, lse
    reports, made = launch(of, config, (q, k, v, grad), results, numbers, (q_ends, k_ends), schedule)
    without = [slice(row - rows, row) for (rows, keys), row in zip(lengths, q_ends, strict=True) if not keys]
    found = [np.asarray(x, np.float64) for x in made]
    errors = [
        float(np.linalg.norm(x[:, :-UNWRITTEN] - y[:, :-UNWRITTEN]) / max(np.linalg.norm(y), 1e-30))
        for x, y in zip(found, wanted, strict=True)
    ]
    if any(made[0][:, each].any() for each in without):
        errors[0] = float("inf")  # dQ of queries without keys is exactly 0
    return reports, errors, found


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("schedule", ["lazy", "eager", "random", "starve"])
@pytest.mark.parametrize("causal", [False, True])
def test_sequences_are_each_for_itself_and_clean_under_every_schedule(causal: bool, schedule: str) -> None:
    of = replace(NARROW, window_right=causal)
    reports, errors, found = run(of, LENGTHS, edges=(0 if causal else None, None), schedule=schedule)
    for report in reports:
        report.raise_on_findings()
    assert max(errors) <= ERROR
    assert all((array[:, -UNWRITTEN:] == FILLED).all() for array in found), "rows behind the last sequence: not written"


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("first, last", [(-70, 0), (-20, 33)])
def test_a_window_of_each_sequence(first: int, last: int) -> None:
    reports, errors, _ = run(replace(NARROW, window_right=True, window_left=True), LENGTHS, edges=(last, first))
    for report in reports:
        report.raise_on_findings()
    assert max(errors) <= ERROR


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("head_dim", [128, 96, 256])
def test_head_dimensions(head_dim: int) -> None:
    of = replace(NARROW, head_dim=head_dim, value_dim=head_dim, window_right=True)
    reports, errors, _ = run(of, [(70, 100), (33, 20), (0, 5), (90, 131)], edges=(0, None), config=backward_config(of))
    for report in reports:
        report.raise_on_findings()
    assert max(errors) <= ERROR


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("lengths", [[1], [128, 0, 0, 1], [127, 1, 128, 129, 5], [0, 0, 300]])
def test_every_query_has_its_place_and_all_others_weigh_nothing(lengths: list[int]) -> None:
    ends, total = ends_of(lengths), sum(lengths)
    lse = np.arange(1, total + 1, dtype=np.float32).reshape(1, 1, total)
    ones = np.ones((1, total, 1, 64), NUMPY["bf16"])
    sums = [np.full((1, 1, BackwardConfig(TILE).padded(total, len(lengths))), np.nan, np.float32) for _ in range(2)]
    kernel = attention_backward_rows.build_rows(NARROW.dtype, 64, False, TILE)
    lse2, delta = kernel.emulate(ones, ones, lse, ends, *sums).outputs[-2:]
    wanted = np.full(lse2.shape, np.inf)
    for number, length in enumerate(lengths):
        begin = int(ends[number]) - length
        place = (-(-begin // TILE) + number) * TILE
        wanted[0, 0, place : place + length] = LOG2_E * np.arange(begin + 1, begin + length + 1)
    np.testing.assert_allclose(lse2, wanted, rtol=1e-6)
    np.testing.assert_array_equal(delta, np.where(np.isinf(wanted), 0, 64))
