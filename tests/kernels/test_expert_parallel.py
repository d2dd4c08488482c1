"""Experts on several emulated GPUs: right and clean for every routing; each planted fault is found."""

from __future__ import annotations

import re
from functools import lru_cache

import ml_dtypes
import numpy as np
import pytest

from tests.kernels.peer_mutants import HAND_OVERS
from tests.kernels.test_tensor_parallel import SCHEDULES, TRIED, record
from warploom import H200
from warploom.collective.tile import timeout_record
from warploom.errors import ArgumentError, EmulationError
from warploom.isa.dtypes import bf16, e4m3, f16, f32
from warploom.kernels.hopper import expert_parallel
from warploom.kernels.hopper.description import Config, Product

BF16 = ml_dtypes.bfloat16
CONFIG = Config(tile_m=64, tile_n=64, consumers=1, stages=3, epi_stages=1, ctas=1, pdl=False)
TWO_CONSUMERS = Config(tile_m=128, tile_n=72, stages=2, epi_stages=1, ctas=1, pdl=False)
MACHINE = H200(sms=2)
ROUNDING = 2**-6
"""Two roundings to bf16."""
N, K = 72, 80


E4M3 = ml_dtypes.float8_e4m3fn
EIGHT_BITS = Product(e4m3, e4m3, bf16)


@lru_cache
def built(
    ranks: int,
    topk: int,
    config: Config = CONFIG,
    activation: str | None = None,
    product: Product = Product(),  # noqa: B008
):
    return expert_parallel.build(ranks, topk, product, config, activation)


class Case:
    """Tokens, experts and weights of all GPUs.

    routing: "random", or the name of an edge. tokens: of each GPU, at most `capacity`.
    """

    def __init__(self, ranks: int, tokens: list[int], experts: int, topk: int, routing: str = "random", *,
                 capacity: int = 0, n: int = N, k: int = K, config: Config = CONFIG,
                 product: Product = Product()) -> None:  # fmt: skip  # noqa: B008
        self.ranks, self.tokens, self.experts, self.topk, self.config = ranks, tokens, experts, topk, config
        self.capacity, self.n, self.k = capacity or max(*tokens, 1), n, k
        self.product, self.dtype = product, product.a.numpy
        draw = np.random.default_rng(ranks + experts)

        def normal(*shape: int) -> np.ndarray:
            return draw.standard_normal(shape).astype(self.dtype)

        each = range(ranks)
        self.x = [normal(self.capacity, k) for _ in each]
        self.w = [normal(experts // ranks * n, k) for _ in each]
        self.weights = [draw.uniform(0.1, 1, (self.capacity, topk)).astype(np.float32) for _ in each]
        self.ids = [self._route(routing, draw).astype(np.int32) for _ in each]
        self.scale_x = [draw.uniform(0.5, 2, self.capacity).astype(np.float32) for _ in each]
        self.scale_w = draw.uniform(0.5, 2, experts).astype(np.float32)

    def _route(self, routing: str, draw: np.random.Generator) -> np.ndarray:
        shape = (self.capacity, self.topk)
        if routing == "one expert":
            return np.full(shape, self.experts - 1)
        if routing == "an expert without a token":
            return draw.integers(1, self.experts, shape)
        if routing == "no expert":
            chosen = draw.integers(0, self.experts, shape)
            return np.where(draw.uniform(size=shape) < 0.5, chosen, draw.choice([-1, self.experts], shape))
        return np.stack([draw.permutation(self.experts)[: self.topk] for _ in range(self.capacity)])

    def expected(self, f=lambda product: product) -> list[np.ndarray]:
        """In f32, rounded where the kernel rounds: what an expert sends back."""
        matrices = np.concatenate([w.astype(np.float32).reshape(-1, self.n, self.k) for w in self.w])
        found = []
        for rank in range(self.ranks):
            y = np.zeros((self.tokens[rank], self.n), np.float32)
            for token in range(self.tokens[rank]):
                for expert, weight in zip(self.ids[rank][token], self.weights[rank][token], strict=True):
                    if 0 <= expert < self.experts:
                        row = f(self.x[rank][token].astype(np.float32) @ matrices[expert].T)
                        if self.product.a.bits == 8:
                            weight = weight * self.scale_x[rank][token] * self.scale_w[expert]
                        y[token] += weight * row.astype(BF16).astype(np.float32)
            found.append(y)
        return found

    def run(self, *, activation: str | None = None, text: str | None = None, patience: int = 1000, **options):
        """The report, and the records of the waits."""
        memory = expert_parallel.memory(self.capacity, self.topk, self.experts, self.ranks, self.config)

        def each(shape, dtype=np.uint32, fill=0) -> list[np.ndarray]:
            return [np.full(shape, fill, dtype) for _ in range(self.ranks)]

        records = [record(patience) for _ in range(self.ranks)]
        scales = [self.scale_x, [self.scale_w] * self.ranks] if self.product.a.bits == 8 else []
        report = built(self.ranks, self.topk, self.config, activation, self.product).emulate(
            self.x, self.ids, self.weights, self.w, each(memory.counts),
            each((memory.rows, self.k), self.dtype, np.nan), each(memory.sources),
            each((memory.returned, self.n), BF16, np.nan), each(memory.signals), each(memory.order),
            each(memory.state), records, *scales, rank=range(self.ranks), tokens=self.tokens,
            out=each((self.capacity, self.n), BF16, 7), devices=self.ranks, machine=MACHINE, ptx=text, **options,
        )  # fmt: skip
        return report, records

    def is_right(self, report, f=lambda product: product) -> bool:
        """True if every GPU has its tokens' sums, and nothing behind them is touched."""
        for found, right, count in zip(report.outputs[0], self.expected(f), self.tokens, strict=True):
            if not np.all(found[count:] == 7):
                return False
            if count and not np.abs(found[:count].astype(np.float32) - right).max() <= ROUNDING * np.abs(right).max():
                return False
        return True


def faults(report) -> list:
    """Findings but one: entries are stored where their turn is, which is anywhere (`Routing.place`)."""
    return [
        each for each in report.findings if each.rule != "uncoalesced-access" or "st.global.u32" not in each.message
    ]


USUAL = {"ranks": 2, "tokens": [11, 7], "experts": 4, "topk": 2}


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_two_launches_are_right_and_clean_under_every_schedule(schedule):
    case = Case(**USUAL)
    report, records = case.run(schedule=schedule, calls=2)
    assert not faults(report)
    assert case.is_right(report)
    assert not any(timeout_record.timed_out(each) for each in records)


CASES = {
    "all tokens to one expert": (2, [70, 3], 4, 2, "one expert"),
    "an expert without a token": (2, [9, 5], 4, 1, "an expert without a token"),
    "a GPU without tokens": (2, [0, 13], 2, 2, "random"),
    "no tokens at all": (2, [0, 0], 2, 1, "random"),
    "entries that are no expert's": (2, [9, 8], 4, 3, "no expert"),
    "four GPUs": (4, [5, 0, 24, 1], 8, 3, "random"),
    "four GPUs, one expert": (4, [3, 40, 30, 5], 4, 1, "one expert"),
    "three GPUs, six experts": (3, [6, 1, 9], 6, 2, "random"),
}


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
@pytest.mark.parametrize("schedule", ["lazy", "random"])
def test_ragged_routings(case, schedule):
    posed = Case(*case)
    report, _ = posed.run(schedule=schedule, calls=2)
    assert not faults(report)
    assert posed.is_right(report)


@pytest.mark.full
def test_the_tile_of_two_consumers_and_narrow_columns():
    posed = Case(2, [130, 9], 2, 1, "random", n=80, config=TWO_CONSUMERS)
    report, _ = posed.run(calls=2)
    assert not faults(report)
    assert posed.is_right(report)


def test_tokens_may_be_fewer_than_there_is_room_for():
    posed = Case(2, [3, 0], 4, 2, capacity=9)
    report, _ = posed.run()
    assert not faults(report)
    assert posed.is_right(report)


@pytest.mark.full
def test_an_activation_comes_before_the_weights():
    posed = Case(**USUAL)
    report, _ = posed.run(activation="relu")
    assert posed.is_right(report, lambda product: np.maximum(product, 0))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("routing", ["random", "no expert", "one expert"])
def test_eight_bits_have_scales_of_tokens_and_experts(routing):
    posed = Case(2, [11, 3], 4, 2, routing, k=144, product=EIGHT_BITS)
    report, _ = posed.run(calls=2)
    assert not faults(report)
    assert posed.is_right(report)


@pytest.mark.full
def test_the_bits_do_not_depend_on_who_comes_first():
    bits = {
        b"".join(each.tobytes() for each in Case(**USUAL).run(schedule=schedule, seed=seed, check=False)[0].outputs[0])
        for schedule, seed in (("lazy", 0), ("random", 1), ("starve", 2), ("pct", 3))
    }
    assert len(bits) == 1


# -- faults ------------------------------------------------------------------------------------------------------------

MUTANTS = {
    **HAND_OVERS,
    "rows that the async proxy does not see": (r"fence\.proxy\.async;", ""),
    "signals before all threads have sent their rows": (r"(?s)(.*)bar\.sync 1, 128;(.*)", r"\1\2"),
    "counters that are not cleared": (r"add\.u32 (%r\d+), (%r\d+), 5;\n(.*\n)*?.*st\.global\.u32.*;", ""),
}


def is_found(text: str, schedule: str, seed: int) -> bool:
    """True if launches fail, compute something else, or the sanitizer calls them an error."""
    case = Case(2, [40, 30], 4, 2)  # rows of several warps
    try:
        report, _ = case.run(text=text, calls=2, schedule=schedule, seed=seed)
    except EmulationError:
        return True
    return not case.is_right(report) or any(finding.severity == "error" for finding in report.findings)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("right, wrong", MUTANTS.values(), ids=MUTANTS)
def test_a_weakened_hand_over_is_an_error(right: str, wrong: str):
    text = built(2, 2).ptx()
    mutant = re.sub(right, wrong, text, count=1 if "(" in right else 0)
    assert mutant != text
    assert any(is_found(mutant, *tried) for tried in TRIED)


@pytest.mark.full
def test_a_gpu_that_tells_no_counts_is_given_up_and_named():
    text = re.sub(r"(?m)^(.*red\.release\.sys.*), 1;", r"\1, 0;", built(2, 2).ptx())
    _, records = Case(**USUAL).run(text=text, patience=0, check=False)
    for each in records:
        waits = timeout_record.timed_out(each)
        assert waits and all(wait.seen == 0 < wait.target for wait in waits)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("topk", [1, 8])
def test_the_configuration_that_is_used_builds_without_spills(ranks, topk):
    kernel = expert_parallel.build(ranks, topk, activation="silu")
    assert kernel.resources().spill_stores == 0


def test_what_has_no_kernel_is_refused():
    for ranks, topk, product, config in (
        (1, 2, Product(), CONFIG),
        (2, 0, Product(), CONFIG),
        (2, 2, Product(e4m3, e4m3, f16), CONFIG),
        (2, 2, Product(out=f32), CONFIG),
        (2, 2, Product(b_major="MN"), CONFIG),
        (2, 2, Product(), Config()),
        (2, 2, Product(), Config(ctas=1, pdl=False, tile_n=256, tile_m=192, consumers=3, stages=2)),
    ):
        with pytest.raises(ArgumentError):
            expert_parallel.build(ranks, topk, product, config)
    with pytest.raises(ArgumentError):
        expert_parallel.build(2, 2, EIGHT_BITS, CONFIG, "relu")


def test_shapes_that_differ_between_gpus_and_memory_that_is_too_small_are_refused():
    def refused(change) -> bool:
        case = Case(**USUAL)
        change(case)
        with pytest.raises(ArgumentError):
            case.run()
        return True

    def longer(case: Case) -> None:
        case.x[1] = np.concatenate([case.x[1]] * 2)

    def more_experts(case: Case) -> None:
        case.w[0] = np.concatenate([case.w[0]] * 2)

    def uneven(case: Case) -> None:
        case.experts = 5

    def small(case: Case) -> None:
        case.topk = 1

    for change in (longer, more_experts, uneven, small):
        assert refused(change)
