"""Calls of communicating products as PyTorch makes them on each rank, with emulated launches.

The ranks of a group are made one after the other in this process. Each call records its launch; when all have called,
the kernel runs on as many emulated devices.
"""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.integrations.test_torch_distributed import Alone  # noqa: E402
from warploom import H200  # noqa: E402
from warploom.collective.reduce.peers import FORMS  # noqa: E402
from warploom.collective.tile import timeout_record  # noqa: E402
from warploom.errors import ArgumentError, ArgumentTypeError, PeerError  # noqa: E402
from warploom.integrations.torch import distributed, experts, peer_experts, peer_launch, symm_mem, symmetric  # noqa: E402
from warploom.kernels.hopper import (  # noqa: E402  # noqa: E402
    copied_rows,
    expert_parallel,
    gemm_all_gather,
    gemm_all_reduce,
    gemm_reduce_scatter,
    ranked_tile,
)
from warploom.kernels.hopper.description import Config  # noqa: E402
from warploom.runtime.copies import MemoryCopy  # noqa: E402
from warploom.settings import GATHERS  # noqa: E402
from warploom.settings import config as settings  # noqa: E402

E4M3, BF16 = torch.float8_e4m3fn, torch.bfloat16
TOLERANCE = 0.01
SMALL = Config(ctas=1, pdl=False, tile_m=128, tile_n=64, stages=3)
SMALL_EXPERTS = Config(tile_m=64, tile_n=64, consumers=1, stages=3, epi_stages=1, ctas=1, pdl=False)
MACHINE = H200(sms=2)


class Emulated:
    """A group of ranks that make the same call."""

    def __init__(self, monkeypatch, ranks: int = 2) -> None:
        self.ranks = [Alone(ranks, rank) for rank in range(ranks)]
        self.memory: dict = {}
        self.noted: list = []
        self.copies: dict[int, list] = {}
        self.current = self.ranks[0]
        self.dead: int | None = None
        """A rank whose kernel ends at once."""
        monkeypatch.setattr(ranked_tile, "choose", lambda *sizes, **options: SMALL)
        monkeypatch.setattr(copied_rows, "LEAST_BYTES", 1 << 10)
        monkeypatch.setattr(copied_rows, "LEAST_K_TILES", 1)
        monkeypatch.setattr(peer_launch, "Transfers", partial(Noted, self.copies))
        for module in (gemm_all_gather, gemm_reduce_scatter):
            monkeypatch.setattr(module, "build", partial(self._built, module.build))
        monkeypatch.setattr(expert_parallel, "CONFIG", SMALL_EXPERTS)
        memory, build = expert_parallel.memory, partial(expert_parallel.build, config=SMALL_EXPERTS)
        monkeypatch.setattr(expert_parallel, "memory", lambda *sizes: memory(*sizes[:4], SMALL_EXPERTS))
        monkeypatch.setattr(expert_parallel, "build", partial(self._built, build))
        monkeypatch.setattr(gemm_all_reduce, "build", partial(self._built, gemm_all_reduce.build))
        monkeypatch.setattr(peer_launch, "by_collectives", lambda known, a: False)
        monkeypatch.setattr(peer_launch, "sms_of", lambda device: MACHINE.sms)
        monkeypatch.setattr(symmetric, "make", self._make)
        for module in (symm_mem, distributed, experts):
            monkeypatch.setattr(module, "group_of", lambda name: self.current)
        for module in (peer_launch, distributed, experts):
            monkeypatch.setattr(module, "ranks_of", lambda group: self.current)

    def _make(self, group, wanted, device):
        def shared(what, shape, dtype):
            made = self.memory.setdefault((what, shape), [torch.zeros(shape, dtype=dtype) for _ in self.ranks])
            return tuple(each.view(torch.uint32) if dtype is torch.int32 else each for each in made)

        state, record = (torch.zeros(count, dtype=torch.int32) for count in (wanted.state, wanted.record))
        record[timeout_record.TIMEOUT] = 1000 if self.dead is None else 0
        return symmetric.Exchange(
            wanted, shared("data", wanted.shape, wanted.dtype), shared("counters", (wanted.counters,), torch.int32),
            state.view(torch.uint32), record.view(torch.uint32), record.numpy(), (),
            tuple(shared(at, *each) for at, each in enumerate(wanted.more)),
        )  # fmt: skip

    def _built(self, build, *given, **options):
        kernel = build(*given, **options)
        return Recorded(kernel, self.noted)

    def call(self, function, *of_rank):
        """Its results by rank; `of_rank`: lists of arguments, or one for all."""
        self.noted, results = [], []
        self.copies.clear()
        for known in self.ranks:
            self.current = known
            mine = [each[known.rank] if isinstance(each, list) else each for each in of_rank]
            results.append(function(*mine))
        (kernel, first, _), *_ = self.noted
        arguments = [
            list(each) if isinstance(each, tuple) else widened([noted[1][at] for noted in self.noted])
            for at, each in enumerate(first)
        ]
        outs = widened([noted[2] for noted in self.noted])
        text = None if self.dead is None else without_rank(kernel.ptx(), self.dead)
        report = kernel.emulate(*arguments, out=outs, devices=len(self.ranks), machine=MACHINE, ptx=text,
                                copies=[self.copies[rank] for rank in sorted(self.copies)])  # fmt: skip
        assert self.dead is not None or not [each for each in report.findings if each.severity == "error"]
        return results


class Recorded:
    """A kernel whose calls are noted."""

    def __init__(self, kernel, noted: list) -> None:
        self.kernel, self.noted = kernel, noted

    def __call__(self, *arguments, out) -> None:
        self.noted.append((self.kernel, arguments, out))

    def launch_of(self, *arguments, out) -> None:
        return None


class Noted:
    """Copies of a call that are emulated instead of the copy engines'."""

    def __init__(self, copies: dict, rank: int, plan, exchange, device, *, travel: bool) -> None:
        self.copies, self.rank, self.plan, self.exchange, self.travel = copies, rank, plan, exchange, travel

    def addresses(self, a, scales) -> list:
        return []

    def begin(self, a, scales) -> None:
        streams = self.copies[self.rank] = [[], []]
        one = np.ones(1, np.uint32)
        for number, part in enumerate(self.plan.parts(self.rank)):
            rows, columns = slice(part.first, part.first + part.rows), slice(part.start, part.start + part.bytes)
            data, flags = self.exchange.data[part.to].view(torch.uint8), self.exchange.counters[part.to].numpy()
            stream = streams[number % 2]
            stream.append(
                MemoryCopy(a.view(torch.uint8).numpy()[rows, columns], data[self.rank].numpy()[rows, columns])
            )
            if self.travel and part.begins:
                theirs = self.exchange.more[0][part.to][self.rank].numpy()
                stream.append(MemoryCopy(scales.view(-1).numpy()[rows], theirs[rows]))
            stream.append(MemoryCopy(one, flags[part.flag : part.flag + 1], flag=True))

    def end(self, a, scales) -> None:
        assert self.rank in self.copies


def without_rank(text: str, dead: int) -> str:
    """A kernel that ends at once on one rank."""
    found = re.search(r"ld\.param\.u32 (%r\d+), \[arg_rank\];", text)
    assert found is not None
    end = f"{found[0]}\n    .reg .pred %dead;\n    setp.eq.u32 %dead, {found[1]}, {dead};\n    @%dead exit;"
    return text.replace(found[0], end, 1)


def widened(values: list) -> list:
    """Tensors of the ranks with as many rows as the longest: the emulator's devices have one shape."""
    rows = max(each.shape[0] if isinstance(each, torch.Tensor) else 0 for each in values)
    return [
        each if not isinstance(each, torch.Tensor) or each.shape[0] == rows
        else torch.cat([each, each.new_zeros(rows - each.shape[0], *each.shape[1:])])
        for each in values
    ]  # fmt: skip


@pytest.fixture
def group(monkeypatch):
    return Emulated(monkeypatch)


def normal(*shape: int, dtype=BF16, seed: int = 0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def each(make):
    return [make(seed) for seed in range(2)]


def near(found, right) -> bool:
    return found.shape == right.shape and float((found.float() - right).norm() / right.norm()) < TOLERANCE


def positive(*shape: int, seed: int = 0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) + 0.5


def test_schemas_are_those_of_pytorch():
    import_module("torch.distributed._symmetric_memory")
    for name in symm_mem.SCHEMAS:
        theirs, ours = (getattr(getattr(torch.ops, space), name).default._schema for space in ("symm_mem", "warploom"))
        assert str(ours).partition("::")[2] == str(theirs).partition("::")[2]


@pytest.mark.parametrize("dim, by", [(0, "push"), (1, "push"), (0, "tma"), (1, "copy")])
def test_a_is_gathered_along_a_dimension_and_given_back(group, dim, by):
    a, b = each(lambda seed: normal(3, 10, 64, seed=seed)), each(lambda seed: normal(72, 64, seed=9 + seed).mT)
    with settings.override(peer_gather=by):
        found = group.call(distributed.fused_all_gather_matmul, a, [[one] for one in b], dim, "group")
    whole = torch.cat(a, dim)
    for (kept, (product,)), weight in zip(found, b, strict=True):
        assert torch.equal(kept, whole)
        assert near(product, whole.float() @ weight.float())


def test_without_a_nothing_is_kept(group):
    a, b = each(lambda seed: normal(16, 64, seed=seed)), normal(64, 64, seed=9).mT

    def call(mine):
        return distributed.fused_all_gather_matmul(mine, [b], 0, "group", return_A=False)

    for kept, (product,) in group.call(call, a):
        assert kept is None and near(product, torch.cat(a).float() @ b.float())


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("kind, by", [("tensor", "push"), ("row", "push"), ("all rows", "push"), ("row", "copy")])
def test_eight_bit_operands_are_gathered_with_their_scales(group, kind, by):
    a, b = each(lambda seed: normal(2, 9, 64, dtype=E4M3, seed=seed)), normal(48, 64, dtype=E4M3, seed=9).mT
    of_rows = each(lambda seed: positive(2, 9, 1, seed=seed))
    scale_b = positive(1) if kind == "tensor" else positive(1, 48)
    scale_a = {"tensor": positive(1), "row": of_rows, "all rows": torch.cat(of_rows)}[kind]
    bias = normal(48, seed=4)

    def call(mine, scale):
        return distributed.fused_all_gather_scaled_matmul(
            mine, [b], scale, [scale_b], 0, "group", [bias], [None], [None], [True]
        )

    right = torch.cat([one.float() for one in a]) * (scale_a if kind == "tensor" else torch.cat(of_rows))
    right = right @ b.float() * scale_b + bias.float()
    with settings.override(peer_gather=by):
        found = group.call(call, a, scale_a)
    for kept, (product,) in found:
        assert torch.equal(kept.view(torch.uint8), torch.cat([one.view(torch.uint8) for one in a]))
        assert product.dtype is BF16 and near(product, right)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("reduce", ["sum", "avg"])
def test_products_are_scattered_along_a_dimension(group, dim, reduce):
    a, b = each(lambda seed: normal(4, 6, 64, seed=seed)), each(lambda seed: normal(72, 64, seed=9 + seed).mT)
    found = group.call(distributed.fused_matmul_reduce_scatter, a, b, reduce, dim, "group")
    total = sum(x.float() @ w.float() for x, w in zip(a, b, strict=True)) / (2 if reduce == "avg" else 1)
    for product, right in zip(found, total.chunk(2, dim), strict=True):
        assert near(product, right)


@pytest.mark.parametrize("rows", [False, True])
def test_eight_bit_products_are_scattered(group, rows):
    a, b = (each(lambda seed, n=n: normal(n, 64, dtype=E4M3, seed=seed)) for n in (24, 48))
    scale_a = each(lambda seed: positive(24, 1, seed=seed) if rows else positive(1, seed=seed))
    scale_b = each(lambda seed: positive(1, 48, seed=seed) if rows else positive(1, seed=seed))

    def call(x, w, of_x, of_w):
        return distributed.fused_scaled_matmul_reduce_scatter(
            x, w.mT, of_x, of_w, "sum", 1, 0, "group", [4, 6, 48], None, None, torch.float16, True
        )

    found = group.call(call, a, b, scale_a, scale_b)
    total = sum((x.float() @ w.float().mT) * s * t for x, w, s, t in zip(a, b, scale_a, scale_b, strict=True))
    for product, right in zip(found, total.view(4, 6, 48).chunk(2, 1), strict=True):
        assert product.dtype is torch.float16 and near(product, right)


def test_tokens_go_to_experts_of_other_ranks(group):
    tokens, topk, local, n, k = (5, 0), 2, 2, 64, 64
    x = [normal(count, k, seed=count) for count in tokens]
    w = each(lambda seed: normal(local, n, k, seed=9 + seed))
    draw = torch.Generator().manual_seed(2)
    chosen = [torch.randint(0, 4, (count, topk), generator=draw, dtype=torch.int32) for count in tokens]
    weights = [positive(count, topk, seed=count) for count in tokens]
    call = partial(distributed.experts_matmul, capacity=5)
    matrices = torch.cat(w).float()
    rows = torch.einsum("tk,jnk->tjn", x[0].float(), matrices)
    right = sum(
        weights[0][:, j, None] * rows[torch.arange(5), chosen[0][:, j].long()].to(BF16).float() for j in range(topk)
    )
    found = group.call(call, x, chosen, weights, w)
    assert near(found[0], right) and found[1].shape == (0, n)


@pytest.mark.parametrize("by", GATHERS)
def test_rows_are_gathered_as_the_call_says(group, by):
    a, b = each(lambda seed: normal(144, 200, seed=seed)), each(lambda seed: normal(72, 200, seed=9 + seed).mT)
    found = group.call(lambda x, w: distributed.all_gather_matmul(x, w, by=by), a, b)
    assert bool(group.copies) is (by == "copy")
    for product, weight in zip(found, b, strict=True):
        assert near(product, torch.cat(a).float() @ weight.float())


@pytest.mark.parametrize("by", FORMS)
def test_sums_travel_as_the_call_says_and_have_the_same_bits(group, by):
    a, b = each(lambda seed: normal(8, 128, seed=seed)), each(lambda seed: normal(64, 128, seed=9 + seed).mT)
    found = group.call(lambda x, w: distributed.matmul_all_reduce(x, w, by=by), a, b)
    parts = [(x.float() @ w.float()).to(BF16).float() for x, w in zip(a, b, strict=True)]
    assert torch.equal(*found) and near(found[0], sum(parts))


@pytest.mark.parametrize("what", ["all_gather_matmul", "matmul_all_reduce"])
def test_a_form_that_nobody_knows_is_refused(group, what):
    with pytest.raises(ArgumentError) as caught:
        getattr(distributed, what)(normal(16, 64), normal(64, 64).mT, by="pigeons")
    assert caught.value.code == "unknown-name"


def test_eight_bit_tokens_go_to_experts_with_scales(group):
    tokens, local, n, k = (5, 0), 2, 64, 64
    x = [normal(count, k, dtype=E4M3, seed=count) for count in tokens]
    w = each(lambda seed: normal(local, n, k, dtype=E4M3, seed=9 + seed))
    chosen = [torch.arange(count, dtype=torch.int32).view(-1, 1) % 4 for count in tokens]
    weights, scale_x = ([positive(count, *more, seed=count) for count in tokens] for more in ((1,), ()))
    scale_w = positive(4, seed=3)

    def call(x, chosen, weights, w, scale_x):
        return distributed.experts_matmul(x, chosen, weights, w, capacity=5, scale_x=scale_x, scale_w=scale_w)

    found = group.call(call, x, chosen, weights, w, scale_x)
    expert = chosen[0][:, 0].long()
    rows = torch.einsum("tk,tnk->tn", x[0].float(), torch.cat(w).float()[expert]).to(BF16).float()
    assert found[0].dtype is BF16 and found[1].shape == (0, n)
    assert near(found[0], rows * (weights[0][:, 0] * scale_x[0] * scale_w[expert])[:, None])


@pytest.mark.parametrize("rows", [False, True])
def test_an_all_reduce_of_eight_bits_has_each_rank_s_scales(group, rows):
    a, b = (each(lambda seed, n=n: normal(n, 256, dtype=E4M3, seed=seed)) for n in (64, 64))
    shapes = ((64, 1), (1, 64)) if rows else ((1,), (1,))
    scale_a, scale_b = (each(lambda seed, s=shape: positive(*s, seed=seed + 5 * len(s))) for shape in shapes)
    found = group.call(lambda x, w, s, t: distributed.scaled_matmul_all_reduce(x, w.mT, s, t), a, b, scale_a, scale_b)
    right = sum((x.float() @ w.float().mT) * s * t for x, w, s, t in zip(a, b, scale_a, scale_b, strict=True))
    assert torch.equal(*found) and found[0].dtype is BF16 and near(found[0], right)


def calls_of(what: str) -> tuple:
    """A call with its arguments, by rank."""
    a, b = each(lambda seed: normal(16, 128, seed=seed)), each(lambda seed: normal(64, 128, seed=9 + seed).mT)
    if what != "experts_matmul":
        return getattr(distributed, what), a, b
    chosen = torch.arange(16, dtype=torch.int32).view(-1, 1) % 4
    return distributed.experts_matmul, a, chosen, positive(16, 1), each(lambda seed: normal(2, 64, 128, seed=seed))


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("what", [*peer_launch.LAUNCHES, "experts_matmul"])
def test_a_gpu_that_ends_at_once_is_named_by_the_other_and_the_group_is_made_anew(group, what):
    group.dead = 1
    group.call(*calls_of(what))
    with pytest.raises(PeerError) as caught:
        group.ranks[0].check()
    assert caught.value.code == "peer-timeout" and "rank 1" in str(caught.value).splitlines()[0]
    with pytest.raises(PeerError):  # and so does the next call
        group.call(*calls_of(what))
    for known in group.ranks:
        known.forget()
    group.dead = None
    group.memory.clear()
    group.call(*calls_of(what))
    for known in group.ranks:
        known.check()


def test_a_gpu_that_ends_at_once_is_named_though_its_copies_have_come(group):
    group.dead = 1
    with settings.override(peer_gather="copy"):
        group.call(*calls_of("all_gather_matmul"))
    with pytest.raises(PeerError) as caught:
        group.ranks[0].check()
    assert caught.value.code == "peer-timeout" and "rank 1" in str(caught.value).splitlines()[0]


@pytest.mark.parametrize("rows, columns", [(0, 64), (16, 0)])
@pytest.mark.parametrize("what", peer_launch.LAUNCHES)
def test_products_without_rows_or_columns_are_empty_and_launch_nothing(group, what, rows, columns):
    function = getattr(distributed, what)
    for known in group.ranks:
        group.current = known
        found = function(normal(rows, 64), normal(columns, 64).mT)
        assert found.numel() == 0 and known.agreed == 1
        scale = {"all_gather_matmul": 2, "matmul_reduce_scatter": 0.5}.get(what, 1)
        assert found.shape == (rows * scale, columns)
    assert not group.noted and not group.memory


REFUSED = {
    "no k": lambda a, b: distributed.matmul_all_reduce(a[:, :0].contiguous(), b[:0].mT.contiguous().mT),
    "rows that are not contiguous": lambda a, b: distributed.all_gather_matmul(a[:, ::2], b[::2]),
    "an output elsewhere": lambda a, b: distributed.matmul_all_reduce(a, b, out=torch.empty(16, 64, device="meta")),
    "no output": lambda a, b: distributed.matmul_all_reduce(a, b, out="d"),
    "a tensor for a list": lambda a, b: distributed.fused_all_gather_matmul(a, b, 0, "group"),
    "a number for a scale": lambda a, b: distributed.scaled_matmul_all_reduce(
        a.to(E4M3), b.mT.to(E4M3).mT, 1.0, positive(1)
    ),
    "along k": lambda a, b: distributed.fused_all_gather_matmul(a, [b], 1, "group"),
    "nothing to multiply by": lambda a, b: distributed.fused_all_gather_matmul(a, [], 0, "group"),
    "a maximum": lambda a, b: distributed.fused_matmul_reduce_scatter(a, b, "max", 0, "group"),
    "uneven rows": lambda a, b: distributed.fused_matmul_reduce_scatter(a[:15], b, "sum", 0, "group"),
    "exact sums": lambda a, b: distributed.fused_scaled_matmul_reduce_scatter(
        a.to(E4M3), b.to(E4M3), positive(1), positive(1), "sum", 0, 0, "group", None
    ),
    "other rows": lambda a, b: distributed.fused_scaled_matmul_reduce_scatter(
        a.to(E4M3), b.to(E4M3), positive(1), positive(1), "sum", 0, 0, "group", [3, 64], use_fast_accum=True
    ),
    "a scale of the result": lambda a, b: distributed.fused_all_gather_scaled_matmul(
        a.to(E4M3), [b], positive(1), [positive(1)], 0, "group", [None], [positive(1)], [None], [True]
    ),
    "too few scales": lambda a, b: distributed.fused_all_gather_scaled_matmul(
        a.to(E4M3), [b], positive(1), [], 0, "group", [None], [None], [None], [True]
    ),
    "scales that do not fit": lambda a, b: distributed.fused_all_gather_scaled_matmul(
        a.to(E4M3), [b.mT.to(E4M3).mT], positive(3, 1), [positive(1)], 0, "group", [None], [None], [None], [True]
    ),
    "a gradient of eight bits": lambda a, b: distributed.fused_scaled_matmul_reduce_scatter(
        a.to(E4M3),
        b.mT.to(E4M3).mT,
        positive(1).requires_grad_(),
        positive(1),
        "sum",
        0,
        0,
        "group",
        None,
        use_fast_accum=True,
    ),
    "experts with a gradient and `out`": lambda a, b: distributed.experts_matmul(
        a.requires_grad_(),
        torch.zeros(16, 1, dtype=torch.int32),
        positive(16, 1),
        normal(1, 64, 64),
        out=normal(16, 64),
    ),
    "a scale of rows beside one of a tensor": lambda a, b: distributed.scaled_matmul_all_reduce(
        a.to(E4M3), b.mT.to(E4M3).mT, positive(16, 1), positive(1)
    ),
    "experts of eight bits without scales": lambda a, b: distributed.experts_matmul(
        a.to(E4M3), torch.zeros(16, 1, dtype=torch.int32), positive(16, 1), normal(1, 64, 64).to(E4M3)
    ),
    "more tokens than room": lambda a, b: distributed.experts_matmul(
        a, torch.zeros(16, 1, dtype=torch.int32), positive(16, 1), normal(1, 64, 64), capacity=8
    ),
    "experts of another depth": lambda a, b: distributed.experts_matmul(
        a, torch.zeros(16, 1, dtype=torch.int32), positive(16, 1), normal(1, 64, 72)
    ),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_what_has_no_kernel_is_refused(group, call):
    with pytest.raises((ArgumentError, ArgumentTypeError)):
        call(normal(16, 64), normal(64, 64).mT)
    assert not group.noted


@pytest.mark.parametrize("types", [(E4M3, BF16), (BF16, BF16), (torch.float32, torch.float32)])
def test_scales_are_for_operands_of_eight_bits(group, types):
    a, b = (normal(16, 64, dtype=dtype) for dtype in types)
    with pytest.raises(ArgumentTypeError):
        distributed.fused_all_gather_scaled_matmul(
            a, [b.mT], positive(1), [positive(1)], 0, "group", [None], [None], [None], [True]
        )
    with pytest.raises(ArgumentTypeError):
        peer_experts.experts_matmul(group.current, a, torch.zeros(16, 1), positive(16, 1), b[None], capacity=16)


def test_shapes_of_traced_results_are_those_of_the_launch(group):
    with torch._subclasses.FakeTensorMode():
        a, b = torch.empty(3, 10, 64, dtype=BF16), torch.empty(72, 64, dtype=BF16).mT
        kept, (product,) = torch.ops.warploom.fused_all_gather_matmul(a, [b], 1, "group")
        assert (kept.shape, product.shape) == ((3, 20, 64), (3, 20, 72)) and product.stride() == (72, 216, 1)
        assert torch.ops.warploom.fused_matmul_reduce_scatter(a, b, "sum", 1, "group").shape == (3, 5, 72)
        scaled = torch.ops.warploom.fused_scaled_matmul_reduce_scatter(
            a.to(E4M3), b.to(E4M3), a, b, "sum", 0, 0, "group", [6, 5, 72], out_dtype=torch.float16
        )
        assert (scaled.shape, scaled.dtype) == ((3, 5, 72), torch.float16)
        ids, weights = torch.empty(10, 2, dtype=torch.int32), torch.empty(10, 2)
        y = torch.ops.warploom.experts_matmul(a[0], ids, weights, torch.empty(2, 72, 64, dtype=BF16), "group")
        assert y.shape == (10, 72)
