"""Operands, exact results and contenders on torch's CPU tensors, where ours run in the emulator."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from warploom.driver import toolchain  # noqa: E402
from warploom.lab import contender, contenders, operands  # noqa: E402
from warploom.lab.warploom_contender import Warploom  # noqa: E402
from warploom.lab.work import GemmWork  # noqa: E402
from warploom.operators import choose  # noqa: E402

NO_BEAT: Any = lambda who, seconds=0.0: None  # noqa: E731
PROBLEMS = [
    GemmWork(40, 48, 64),
    GemmWork(40, 48, 64, out="f32"),
    GemmWork(40, 48, 64, kind="gelu"),
    GemmWork(40, 48, 64, kind="swiglu"),
    GemmWork(44, 16, 32, kind="grouped", rows=(4, 0, 40)),
    GemmWork(40, 48, 64, dtype="e4m3", scales="tensor"),
    GemmWork(40, 48, 64, dtype="e4m3", scales="row"),
    GemmWork(40, 256, 384, dtype="e4m3", scales="block128"),
    GemmWork(40, 144, 208, dtype="e4m3", scales="block128"),
    GemmWork(44, 16, 32, dtype="e4m3", scales="row", kind="grouped", rows=(4, 0, 40)),
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{problem.shape} {problem.dtype} {problem.out}")
def test_the_exact_result_of_the_stored_operands_rounded_once_is_right_and_a_wrong_element_is_not(problem: GemmWork):
    (one,) = operands.make(problem, device="cpu")
    exact = operands.reference(problem, one)
    out = exact.exact.to(one.out.dtype)
    error, right = exact.errors(out)
    assert right and error < {"bf16": 2.5e-3, "f32": 1e-7}[problem.out]
    row, column = problem.m // 2, problem.n // 3
    out[row, column] = out[row, column] + exact.exact.std()
    assert not exact.errors(out)[1], "one wrong element among all is seen"
    out[row, column] = float("nan")
    assert not exact.errors(out)[1]


def test_the_reference_is_what_plain_torch_says_in_f64():
    problem = GemmWork(24, 32, 40)
    (one,) = operands.make(problem, device="cpu")
    torch.testing.assert_close(operands.reference(problem, one).exact, one.a.double() @ one.b.double().T)


@pytest.mark.parametrize("scales, shapes", [("tensor", ((), ())), ("row", ((256, 1), (384, 1))),
                                            ("block128", ((256, 2), (3, 2)))])  # fmt: skip
def test_quantised_operands_stand_for_the_values_they_came_from(scales: str, shapes: tuple[tuple[int, ...], ...]):
    values = [torch.randn(256, 256), torch.randn(384, 256)]
    for side, value, shape in zip("ab", values, shapes, strict=True):
        plain, scale = operands.quantised(value, scales, torch.float8_e4m3fn, side)
        assert tuple(scale.shape) == shape
        back = operands.wide(plain, scale, scales, side)
        # three bits of mantissa: half a step of 1/8 at most, and a smallest step for what is nearly nothing
        assert bool(((back - value).abs() <= value.abs() / 16 + 1e-2).all())


@pytest.mark.parametrize("data, values", [("zeros", {0.0}), ("small-int", {-2.0, -1.0, 0.0, 1.0, 2.0})])
def test_other_data_than_normal_is_what_it_says(data: str, values: set[float]):
    (one,) = operands.make(GemmWork(64, 64, 64), data, device="cpu")
    assert set(one.a.float().unique().tolist()) == values


def test_small_problems_rotate_through_more_than_the_cache_holds():
    small, large = GemmWork(2048, 2048, 2048), GemmWork(8192, 8192, 8192)
    assert operands.sets_of(small) * small.bytes > 200e6
    assert operands.sets_of(large) == 1


@pytest.mark.parametrize(
    "name, problem",
    [
        ("cublas", GemmWork(40, 48, 64)),
        ("loop", GemmWork(44, 16, 32, kind="grouped", rows=(4, 0, 40))),
        ("torch-eager", GemmWork(40, 48, 64, kind="gelu")),
        ("torch-eager", GemmWork(40, 48, 64, kind="swiglu")),
    ],
)
def test_a_contender_computes_what_the_reference_says(name: str, problem: GemmWork):
    sets = operands.make(problem, sets=2, device="cpu")
    prepared = contenders.find(name).prepare(problem, sets, NO_BEAT)
    for one, call in zip(sets, prepared.calls, strict=True):
        one.out.fill_(float("nan"))
        call()
        error, right = operands.reference(problem, one).errors(contender.result(call, one))
        assert right, error


@pytest.mark.sample(3, full=5)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: f"{problem.shape} {problem.dtype} {problem.out}")
def test_ours_through_the_library_computes_every_kind(problem: GemmWork):
    sets = operands.make(problem, device="cpu")
    prepared = Warploom().prepare(problem, sets, NO_BEAT)
    sets[0].out.fill_(float("nan"))
    prepared.calls[0]()
    error, right = operands.reference(problem, sets[0]).errors(sets[0].out)
    assert right, error


def test_a_grouped_product_s_row_names_its_kernel():
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    problem = GemmWork(44, 16, 32, dtype="e4m3", scales="row", kind="grouped", rows=(4, 0, 40))
    prepared = Warploom().prepare(problem, operands.make(problem, device="cpu"), NO_BEAT)
    assert (prepared.kernel, prepared.config) == ("hopper_grouped", choose(problem.posed).config.name())
    assert prepared.facts["spill_bytes"] == 0


@pytest.mark.parametrize("kind", ["gelu", "swiglu"])
def test_rounding_every_intermediate_is_right_and_a_rounding_to_fewer_bits_is_not(kind: str):
    problem = GemmWork(256, 256, 512, kind=kind)
    (one,) = operands.make(problem, device="cpu")
    exact = operands.reference(problem, one)
    linear, a = torch.nn.functional.linear, one.a.float()
    product = linear(a, one.b.float(), one.bias.float() if kind == "gelu" else None).bfloat16()
    if kind == "gelu":
        found = torch.nn.functional.gelu(product)
    else:
        found = torch.nn.functional.silu(product) * linear(a, one.up.float()).bfloat16()
    assert exact.errors(found)[1]
    coarse = (found.view(torch.int16) & -4).view(torch.bfloat16)
    assert not exact.errors(coarse)[1], "two bits fewer are seen"


@pytest.mark.parametrize("config", ["rung:8", "cooperative_128x128x4_g8", "ping_pong_128x64x3_2b_g8,epi_stages=1"])
def test_ours_with_a_pinned_kernel_computes_it_and_tells_how_it_is_built(config: str):
    if toolchain.ptxas() is None:
        pytest.skip("no ptxas here")
    from warploom.lab import evidence, recipe

    problem = GemmWork(200, 136, 72)
    sets = operands.make(problem, device="cpu")
    prepared = Warploom(config).prepare(problem, sets, NO_BEAT)
    prepared.calls[0]()
    assert operands.reference(problem, sets[0]).errors(sets[0].out)[1]
    facts = prepared.facts
    assert facts["spill_bytes"] == 0 and facts["registers"] > 0
    assert evidence.ptx_sha256(recipe.rebuild(facts["build"]).ptx()) == facts["ptx_sha256"]


def test_a_rung_is_no_fused_product_but_a_pinned_configuration_may_be():
    fused, scaled = GemmWork(8, 8, 8, kind="gelu"), GemmWork(8, 8, 16, dtype="e4m3", scales="row")
    assert Warploom("rung:8").missing(fused) == "a rung is a plain product"
    for problem in (fused, scaled):
        assert Warploom("ping_pong_128x128x5_g8").missing(problem) is None
