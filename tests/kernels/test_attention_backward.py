"""The kernels of attention's gradients against float64 autograd, clean under every schedule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.attention_cases import NUMPY, Attention, operands, reference
from warploom.kernels.hopper import attention_backward, attention_backward_keys, attention_backward_queries
from warploom.kernels.hopper.attention_backward import LOG2_E, PADDED, BackwardConfig, keys_parts
from warploom.operators.attention.captured import captured
from warploom.runtime.machine import H200

NARROW = Attention(head_dim=64, value_dim=64)
ERROR = 4e-3


def exact(q, k, v, grad, last, first):
    """dQ, dK, dV, O and LSE, (B, S, H, D) and (B, H, S), by the formulas in float64."""
    group, scale = q.shape[2] // k.shape[2], q.shape[3] ** -0.5
    out, lse = reference(q, k, v, scale=scale, last=last, first=first)
    q, k, v, g = (np.asarray(x, np.float64).transpose(0, 2, 1, 3) for x in (q, k, v, grad))
    wide_k, wide_v = (np.repeat(x, group, 1) for x in (k, v))
    i, j = np.indices((q.shape[2], k.shape[2]))
    hidden = (j > i + last if last is not None else j < 0) | (j < i + first if first is not None else j < 0)
    p = np.where(hidden, 0, np.exp(q @ wide_k.swapaxes(2, 3) * scale - np.where(np.isinf(lse), np.inf, lse)[..., None]))
    ds = p * (g @ wide_v.swapaxes(2, 3) - (g * out.transpose(0, 2, 1, 3)).sum(-1, keepdims=True)) * scale

    def shared(x):
        return x.reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2).transpose(0, 2, 1, 3)

    dq = (ds @ wide_k).transpose(0, 2, 1, 3)
    return dq, shared(ds.swapaxes(2, 3) @ q), shared(p.swapaxes(2, 3) @ g), out, lse


def run(of, queries, keys, heads=(2, 1), last=None, first=None, schedule="lazy", config=None):
    """The reports, and the relative error of dQ, dK and dV."""
    q, k, v = operands(queries, keys, of, heads)
    grad = np.random.default_rng(7).standard_normal((*q.shape[:3], of.value_dim)).astype(NUMPY[of.dtype.name])
    wanted = exact(q, k, v, grad, last, first)
    rows = [np.zeros((1, heads[0], -(-queries // PADDED) * PADDED), np.float32) for _ in range(2)]
    given = wanted[3].astype(q.dtype, order="C"), grad, wanted[4].astype(np.float32)
    reports = [attention_backward.build_rows(of.dtype, of.value_dim, False).emulate(*given, *rows)]
    numbers = {"scale": of.head_dim**-0.5 * LOG2_E, "factor": of.head_dim**-0.5}
    numbers |= {} if of.score_mod is None else {"scale": LOG2_E, "inner": of.head_dim**-0.5}
    numbers |= {name: edge for name, edge in (("last", last), ("first", first)) if edge is not None}
    found = []
    for kernel in (
        attention_backward_queries.build(of, config),
        *(attention_backward_keys.build(of, config, parts) for parts in keys_parts(of)),
    ):
        report = kernel.emulate(q, k, v, grad, *rows, schedule=schedule, machine=H200(sms=2), **numbers)
        reports.append(report)
        found += report.outputs[-2 if kernel.name == "attention_keys" and len(keys_parts(of)) == 1 else -1 :]
    return reports, [
        float(np.linalg.norm(x.astype(np.float64) - y) / max(np.linalg.norm(y), 1e-30))
        for x, y in zip(found, wanted[:3], strict=True)
    ]


@pytest.mark.sample(2, all=4)
@pytest.mark.parametrize("schedule", ["eager", "lazy", "random", "starve"])
@pytest.mark.parametrize("queries, keys", [(1, 1), (63, 129), (65, 63), (129, 200), (130, 64)])
@pytest.mark.parametrize("causal", [False, True])
def test_any_lengths_are_right_and_clean_under_every_schedule(queries, keys, causal, schedule):
    of = replace(NARROW, above=causal)
    config = BackwardConfig(tile=64, consumers=2, stages=2)
    reports, errors = run(of, queries, keys, last=keys - queries if causal else None, schedule=schedule, config=config)
    for report in reports:
        report.raise_on_findings()
    assert max(errors) <= ERROR


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("schedule", ["lazy", "random"])
@pytest.mark.parametrize("queries, keys", [(65, 63), (129, 100)])
def test_functions_that_change_nothing_give_the_same_and_are_clean(queries, keys, schedule):
    same = captured(lambda s, b, h, i, j: s * 2 - s + 0 * (i - j), "score_mod").function
    all_ = captured(lambda b, h, i, j: i - j < 1000, "mask_mod").function
    of = replace(NARROW, above=True, score_mod=same, mask_mod=all_)
    reports, errors = run(of, queries, keys, last=keys - queries, schedule=schedule)
    for report in reports:
        report.raise_on_findings()
    assert max(errors) <= ERROR


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("first, last", [(-70, 0), (100, 171), (-300, -100)])
def test_a_window_with_both_edges(first, last):
    of = replace(NARROW, above=True, below=True)
    reports, errors = run(of, 129, 300, first=first, last=last)
    for report in reports:
        report.raise_on_findings()
    assert max(errors) <= ERROR


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("head_dim, value_dim", [(96, 96), (128, 64), (128, 128), (192, 128), (256, 256)])
def test_head_dimensions(head_dim, value_dim):
    reports, errors = run(Attention(head_dim=head_dim, value_dim=value_dim, above=True), 70, 100, last=30)
    for report in reports:
        report.raise_on_findings()
    assert max(errors) <= ERROR


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_they_build_without_spills_and_serialised_products(head_dim):
    of = Attention(head_dim=head_dim, value_dim=head_dim, above=True)
    kernels = [attention_backward_queries.build(of)]
    kernels += [attention_backward_keys.build(of, parts=parts) for parts in keys_parts(of)]
    for kernel in kernels:
        assert not kernel.resources().serialisation_notes


def test_without_the_meeting_of_its_warps_a_stage_is_let_go_too_early():
    """lse2 and delta are read by all warps; one thread tells the producer."""
    of = NARROW
    text = attention_backward_keys.build(of, BackwardConfig(stages=1)).ptx()
    lines = text.splitlines()
    meeting = [n for n, line in enumerate(lines) if "bar.sync" in line and ", 128;" in line]
    without = "\n".join(line for n, line in enumerate(lines) if n not in meeting[:1])
    q, k, v = operands(200, 64, of)
    grad = np.random.default_rng(7).standard_normal(q.shape).astype(q.dtype)
    rows = [np.zeros((1, 1, 256), np.float32) for _ in range(2)]
    kernel = attention_backward_keys.build(of, BackwardConfig(stages=1))
    report = kernel.emulate(q, k, v, grad, *rows, ptx=without, scale=0.125, factor=0.125)
    assert {finding.rule for finding in report.findings} & {"warp-synchronous", "data-race"}
