"""Attention as the benchmark has it: problems, exact results, contenders. Ours run in the emulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.errors import refused
from warploom.errors import ArgumentError
from warploom.lab import attention_contenders, contender, contenders, plans, recipe
from warploom.lab.attention_problem import (
    ANY_DATA,
    DECODES,
    FORWARDS,
    HEADLINE,
    DecodeProblem,
    ForwardProblem,
    parse,
)

torch = pytest.importorskip("torch")

from warploom.lab import attention_operands  # noqa: E402
from warploom.lab.attention_contenders import TorchAttention, WarploomAttention, WarploomBf16  # noqa: E402
from warploom.lab.gpu_stage import compared  # noqa: E402

NO_BEAT: Any = lambda who, seconds=0.0: None  # noqa: E731
SMALL = ForwardProblem(64, 130, batch=1, heads=2)
FORWARD = [
    SMALL,
    replace(SMALL, causal=True, group=2),
    replace(SMALL, causal=True, window=(40, 0), dtype="f16"),
    replace(SMALL, head_dim=96, value_dim=64),
    replace(SMALL, dtype="e4m3"),
    replace(SMALL, data="sink at key 0", causal=True),
]
DECODE = [
    DecodeProblem(2, 96, heads=8, kv_heads=2, dim=64),
    DecodeProblem(3, 96, heads=8, kv_heads=2, dim=64, page=16, ragged=True, queries=2),
    DecodeProblem(2, 64, heads=4, kv_heads=2, dim=64, page=32, fp8_kv=True),
]


def judged(problem: Any, contender: Any, sets: int = 1) -> tuple[float, bool, dict[str, Any]]:
    made = attention_operands.make(problem, sets, "cpu")
    prepared = contender.prepare(problem, made, NO_BEAT)
    error, right = compared(attention_operands.reference(problem, made[0]), made, prepared, lambda: None)
    return error, right, prepared.facts


# -- problems --------------------------------------------------------------------------------------------------------


def test_every_problem_has_a_name_of_its_own_and_the_bounds_of_the_issue_are_among_them() -> None:
    for problems in (FORWARDS, DECODES):
        assert len({problem.name for problem in problems}) == len(problems)
    assert {problem.sizes[0] * problem.length for problem in FORWARDS} == {16384}
    assert {problem.name for problem in HEADLINE} >= {"128 2048 full bf16", "64 16384 causal bf16"}
    assert set(ANY_DATA) == set(attention_operands.DATA)


@pytest.mark.parametrize("problem", [SMALL, replace(SMALL, causal=True), replace(SMALL, window=(7, 3)),
                                     replace(SMALL, window=(7, 3), causal=True)])  # fmt: skip
def test_flops_are_those_of_scores_that_are_seen(problem: ForwardProblem) -> None:
    n = problem.length
    left, right = problem.window or (n, n)
    seen = sum(i - left <= j <= i + (0 if problem.causal else right) for i in range(n) for j in range(n))
    assert problem.flops == 2 * 2 * seen * (64 + 64)


def test_bytes_and_rates_of_a_cache() -> None:
    problem = DecodeProblem(16, 8192)
    assert problem.bytes == 16 * 8192 * 8 * 128 * 2 * 2
    assert replace(problem, fp8_kv=True).bytes * 2 == problem.bytes
    assert problem.rates(problem.bytes / 4.71e12) == {"tb_per_s": 4.71, "of_ceiling": 1.0}
    assert ForwardProblem(128, 2048, dtype="e4m3").bytes == 16384 * 2048 * (3 + 2)


def test_shapes_of_attention_are_read_from_text() -> None:
    (one, two) = parse("4x16x4096x128, 2x32x1024x64x8", ForwardProblem(causal=True))
    assert isinstance(two, ForwardProblem)
    assert (one.sizes, one.causal, one.group) == ((4, 16, 4096, 128), True, 1)  # type: ignore[union-attr]
    assert (two.sizes, two.group) == ((2, 32, 1024, 64), 4)
    (cache,) = parse("3x32x512x128", DecodeProblem(1, 1))
    assert cache == DecodeProblem(3, 512, heads=32, kv_heads=8, dim=128)


@pytest.mark.parametrize("text", ["4x16x4096", "4x16x4096x128x5", "axbxcxd", "0x1x1x64", ""])
def test_what_is_no_shape_of_attention_is_refused(text: str) -> None:
    with refused("argument", got=text):
        parse(text, ForwardProblem())


# -- exact results ---------------------------------------------------------------------------------------------------


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("problem", FORWARD, ids=lambda problem: problem.name)
def test_ours_is_right_by_the_exact_result_and_a_wrong_row_is_not(problem: ForwardProblem) -> None:
    error, right, facts = judged(problem, WarploomAttention())
    assert right and 0 < error < attention_operands.LIMIT[problem.dtype]
    assert facts["lse_error"] < 1e-3 and facts["lse_largest"] > 1
    made = attention_operands.make(problem, 1, "cpu")
    exact = attention_operands.reference(problem, made[0])
    out = torch.zeros(made[0].out.shape, dtype=torch.float64)
    for (batch, head), (rows, _) in zip(exact.rows, exact.exact, strict=True):
        out[batch, head] = rows
    made[0].clear()
    assert exact.errors(out) == (0.0, True) and exact.facts == {}
    out[0, 0, 77] *= -1
    assert not exact.errors(out)[1]
    out[0, 0, 77] = float("nan")
    assert not exact.errors(out)[1]


def test_wrong_logarithms_are_wrong() -> None:
    (made,) = attention_operands.make(SMALL, 1, "cpu")
    exact = attention_operands.reference(SMALL, made)
    WarploomAttention().prepare(SMALL, [made], NO_BEAT).calls[0]()
    assert exact.errors(made.out)[1]
    made.lse[0, 1, 5] += 1e-3
    assert not exact.errors(made.out)[1]
    made.lse[0, 1, 5] = float("nan")
    assert not exact.errors(made.out)[1]


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("problem", DECODE, ids=lambda problem: problem.name)
def test_ours_decodes_right_by_the_exact_result(problem: DecodeProblem) -> None:
    error, right, facts = judged(problem, WarploomAttention(), 2)
    assert right and 0 < error < 4e-3 and facts["lse_error"] < 1e-5 * max(1, facts["lse_largest"])


@pytest.mark.full
def test_e4m3_is_timed_beside_ours_of_the_same_numbers_in_bf16() -> None:
    error, right, _ = judged(replace(SMALL, dtype="e4m3"), WarploomBf16())
    assert right and error < 1e-2, "the same numbers, so far nearer than e4m3's own"


def test_torchs_own_is_right_where_it_has_a_backend_for_cpu_tensors() -> None:
    for problem in (SMALL, replace(SMALL, causal=True, group=2)):
        error, right, facts = judged(problem, TorchAttention("flash"))
        assert right and "lse_error" not in facts


# -- contenders and plans --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, problem, reason",
    [
        ("cudnn", DecodeProblem(1, 64, page=16), "it has no pages"),
        ("flash", DecodeProblem(1, 64, queries=2), "it has no mask for several tokens"),
        ("cudnn", DecodeProblem(1, 64, ragged=True), "it has no lengths"),
        ("cudnn", ForwardProblem(window=(8, 0)), "it has no window"),
        ("cudnn", ForwardProblem(dtype="e4m3"), "it does not take e4m3"),
        ("own-bf16", ForwardProblem(), "it does not take bf16"),
        ("cublas", ForwardProblem(), "it has no attention"),
        ("triton-attention", ForwardProblem(128, 4096, True, group=4), None),
        ("triton-attention", ForwardProblem(96), "it has no such head dimension"),
        ("triton-attention", ForwardProblem(128, value_dim=64), "it has no such head dimension"),
        ("triton-attention", ForwardProblem(window=(8, 0)), "it has no window"),
        ("triton-attention", ForwardProblem(128, 4100), "it takes lengths that are multiples of 128"),
        ("triton-attention", DecodeProblem(1, 64), "it has no attention-decode"),
        ("cudnn", ForwardProblem(), None),
    ],
)
def test_who_cannot_compute_it_says_so(
    name: str, problem: Any, reason: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contender, "installed", lambda package: True)
    assert contenders.find(name).missing(problem) == reason


def test_fields_of_a_configuration_are_pinned_by_text() -> None:
    pinned = WarploomAttention("tile_n=64,guarded=0")
    prepared = pinned.prepare(SMALL, attention_operands.make(SMALL, 1, "cpu"), NO_BEAT)
    assert pinned.name == "warploom:tile_n=64,guarded=0"
    assert "tile_n=64" in prepared.config and "guarded=False" in prepared.config
    assert recipe.rebuild(prepared.facts["build"]).program().arrays
    with refused("argument", got="kays=64"):
        WarploomAttention("kays=64")
    with refused("argument", got="row_blocks"):
        WarploomAttention("row_blocks=2").prepare(SMALL, [], NO_BEAT)


def test_a_plan_of_attention_takes_words_shapes_and_pins() -> None:
    plan = plans.plan("attention", only="causal,16384,normal;f16", configs=["tile_n=96"], seconds=1)
    names = {problem.shape for problem in plan.problems}
    assert {"128 16384 causal bf16", "128 4096 full f16"} <= names and "128 4096 full bf16" not in names
    assert [one.name for one in plan.contenders] == [
        "warploom:tile_n=96",
        "cudnn",
        "flash",
        "triton-attention",
        "own-bf16",
    ]
    assert (plan.launch, plans.plan("attention-decode").launch) == ("stream", "graph")
    assert [p.shape for p in plans.plan("attention-decode", only="page 16,e4m3").problems] == [
        "64 x 8192 32/8 heads of 128 page 16 e4m3"
    ]
    for wrong in ({"only": "sideways"}, {"data": "zeros"}, {"shapes": "128x128x128"}):
        with pytest.raises(ArgumentError):
            plans.plan("attention", **wrong)
    assert attention_contenders.OWN_BF16 == "own-bf16"
