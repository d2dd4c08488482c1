"""Products that communicate, called from PyTorch: differing or missing ranks are named, and nothing hangs.

On CPUs two processes compare their calls through gloo's store; kernels are emulated (tests/kernels). On two and four
GPUs (`-m gpu`) the same calls run.
"""

from __future__ import annotations

import copy
import time

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
import torch.distributed as dist  # noqa: E402

from tests.integrations.torch_ranks import begin, end, spawn  # noqa: E402
from warploom import config  # noqa: E402
from warploom.collective.tile import timeout_record  # noqa: E402
from warploom.errors import ArgumentError, PeerError  # noqa: E402
from warploom.integrations.torch import distributed as distributed  # noqa: E402
from warploom.integrations.torch import peer_launch as peer_launch  # noqa: E402
from warploom.integrations.torch import symmetric as symmetric  # noqa: E402

SHORT_S = 0.3
TOLERANCE = 0.02


# -- on CPUs ---------------------------------------------------------------------------------------------------------


class Alone(symmetric.Group):
    """A group without processes: what others do is written into its memory by the test."""

    def __init__(self, ranks: int = 2, rank: int = 0) -> None:
        self.name, self.ranks, self.rank, self.calls, self.met = "alone", ranks, rank, {}, set()
        self.transfers, self.again = {}, {}
        self.meeting, self.agreed = "", 0

    def agree(self, call) -> None:
        self.agreed += 1


def exchange_of(group: Alone, monkeypatch, wanted: symmetric.MemorySizes, call=("product", 8)) -> symmetric.Exchange:
    def make(group, wanted, device):
        words = tuple(torch.zeros(wanted.counters, dtype=torch.int32).view(torch.uint32) for _ in range(group.ranks))
        return symmetric.Exchange(wanted, (), words, words[0], words[0], np.zeros(wanted.record, np.int32), ())

    monkeypatch.setattr(symmetric, "make", make)
    return group.exchange(call, torch.device("cpu"), lambda: wanted)


def note(exchange: symmetric.Exchange, warp: int, index: int, seen: int, target: int) -> None:
    """What a kernel writes whose wait times out."""
    at = timeout_record.RECORD + timeout_record.RECORD_WORDS * warp
    exchange.host[at : at + timeout_record.RECORD_WORDS] = (index, seen, target, 1)
    exchange.host[0] = 1


def wanted(counters: int = 6, finished: int = 0, raised_by=lambda index: index % 2) -> symmetric.MemorySizes:
    return symmetric.MemorySizes((8,), torch.int32, counters, 4, timeout_record.words(4), raised_by, finished)


def test_the_call_after_one_that_gave_up_names_the_rank_and_the_counter(monkeypatch):
    group = Alone()
    exchange = exchange_of(group, monkeypatch, wanted())
    assert exchange_of(group, monkeypatch, wanted()) is exchange
    note(exchange, warp=2, index=5, seen=3, target=4)
    with pytest.raises(PeerError) as caught:
        exchange_of(group, monkeypatch, wanted())
    assert caught.value.code == "peer-timeout"
    assert "rank 1" in str(caught.value) and "counter 5" in str(caught.value)
    with pytest.raises(PeerError):  # any other call of the group fails too: its counters no longer agree
        exchange_of(group, monkeypatch, wanted(), ("product", 16))


def test_where_several_ranks_raise_a_counter_the_one_with_fewest_launches_is_named(monkeypatch):
    group = Alone(ranks=3, rank=1)
    exchange = exchange_of(group, monkeypatch, wanted(counters=8, finished=3, raised_by=lambda index: None))
    exchange.counters[1][:3] = torch.tensor([7, 7, 6], dtype=torch.int32).view(torch.uint32)
    note(exchange, warp=0, index=5, seen=1, target=3)
    with pytest.raises(PeerError) as caught:
        group.check()
    assert caught.value.code == "peer-timeout" and "rank 2" in caught.value.what


def test_after_forgetting_memory_is_made_anew(monkeypatch):
    group = Alone()
    exchange = exchange_of(group, monkeypatch, wanted())
    note(exchange, warp=0, index=1, seen=0, target=1)
    group.forget()
    group.check()
    again = exchange_of(group, monkeypatch, wanted())
    assert again is not exchange and not again.host.any() and group.agreed == 1


def test_calls_without_a_group_or_on_other_devices_are_refused(monkeypatch):
    a = torch.zeros(8, 16, dtype=torch.bfloat16)
    with pytest.raises(ArgumentError) as caught:
        distributed.matmul_all_reduce(a, a.mT)
    assert caught.value.code == "peer-group"
    monkeypatch.setattr(distributed, "ranks_of", lambda group: Alone())
    a = a.to("meta")
    with pytest.raises(ArgumentError) as caught:
        distributed.matmul_all_reduce(a, a.mT)
    assert caught.value.code == "wrong-device"


# -- gradients, and graphs -------------------------------------------------------------------------------------------


def agreements(rank: int) -> list[object]:
    """Calls that agree, that differ, and that one rank makes alone."""
    group, lines = symmetric.group_of(dist.group.WORLD.group_name), []

    def attempt(*call):
        try:
            group.agree(call)
            lines.append("agreed")
        except (ArgumentError, PeerError) as error:
            lines.append(f"{error.code} {'rank 1' in str(error)}")

    attempt("product", 16, 64)
    attempt("product", 16 + rank, 64)
    with config.override(peer_timeout_s=SHORT_S):
        if rank == 0:
            began = time.monotonic()
            attempt("product", 32, 64)
            lines.append(SHORT_S <= time.monotonic() - began < 20 * SHORT_S)
    dist.barrier()
    group.forget()  # both begin anew, though rank 1 has made a call less
    attempt("product", 32, 64)
    return lines


def gradients(rank: int, world: int) -> list[object]:
    """Of each operation, eager and compiled, next to those of the whole product."""
    draw, lines = torch.Generator().manual_seed(3), []
    m, n, k = 8, 32, 16

    def normal(*shape):
        return torch.randn(shape, generator=draw).to(torch.bfloat16)

    def mine(x, axis):
        return x.chunk(world, axis)[rank].contiguous()

    for what in peer_launch.LAUNCHES:
        a, w, g = normal(m, k), normal(n, k), normal(m, n)
        of_whole = [x.float().requires_grad_() for x in (a, w)]
        right = of_whole[0] @ of_whole[1].mT
        right.backward(g.float())
        gather = what == "all_gather_matmul"
        split_a, split_w = (0, 0) if gather else (1, 1)
        of_result = {"all_gather_matmul": 1, "matmul_reduce_scatter": 0}.get(what)
        for compiled in (False, True):
            mine_a, mine_w = mine(a, split_a).requires_grad_(), mine(w, split_w).requires_grad_()
            function = getattr(distributed, what)

            def call(x, y, function=function):
                return function(x, y.mT)

            if compiled:
                call = torch.compile(call, backend="aot_eager", fullgraph=True)
            found = call(mine_a, mine_w)
            found.backward(g if of_result is None else mine(g, of_result))
            expected = right.detach() if of_result is None else mine(right.detach(), of_result)
            pairs = [
                (found, expected), (mine_a.grad, mine(of_whole[0].grad, split_a)),
                (mine_w.grad, mine(of_whole[1].grad, split_w)),
            ]  # fmt: skip
            worst = max(float((x.detach().float() - y).norm() / y.norm()) for x, y in pairs)
            lines.append(f"{what} {compiled} {worst < TOLERANCE}")
    return lines


def under_pytorch_s_names(rank: int, world: int) -> list[object]:
    """Gradients of `fused_…`, along both dimensions, with the gathered rows and several products."""
    draw, lines, group = torch.Generator().manual_seed(5), [], dist.group.WORLD.group_name
    a, u, v, g, h = (torch.randn(shape, generator=draw) for shape in ((4, 6, 16), (24, 16), (8, 16), (24,), (8,)))

    def away(pairs) -> bool:
        return max(float((x.detach().float() - y).norm() / y.norm()) for x, y in pairs) < TOLERANCE

    for dim in (0, 1):
        whole = a.to(torch.bfloat16).float().requires_grad_()
        weights = [each.to(torch.bfloat16).float().requires_grad_() for each in (u, v)]
        first, second = (whole @ each.mT for each in weights)
        ((first * g).sum() + (second * h).sum() + whole.sum()).backward()
        mine = a.chunk(world, dim)[rank].to(torch.bfloat16).requires_grad_()
        ours = [each.to(torch.bfloat16).requires_grad_() for each in (u, v)]
        kept, (x, y) = distributed.fused_all_gather_matmul(mine, [each.mT for each in ours], dim, group)
        ((x * g).sum() + (y * h).sum() + kept.sum()).backward()  # on every rank: their gradients of A are added up
        lines.append(f"gather {dim} {away([(kept, whole.detach()), (x, first.detach()), (y, second.detach())])}")
        lines.append(f"gather {dim} {away([(mine.grad, world * whole.grad.chunk(world, dim)[rank])])}")
        lines.append(f"gather {dim} {away(zip([o.grad for o in ours], [w.grad for w in weights], strict=True))}")
        part = [each.detach().clone().requires_grad_() for each in (a.to(torch.bfloat16), ours[0])]
        found = distributed.fused_matmul_reduce_scatter(part[0], part[1].mT, "avg", dim, group)
        right = first.detach().chunk(world, dim)[rank]  # all ranks have the same product: their mean is each
        (found * g).sum().backward()
        whole.grad = None
        (whole @ weights[0].mT * g).sum().backward()
        lines.append(f"scatter {dim} {away([(found, right), (part[0].grad, whole.grad / world)])}")
    return lines


def layers(rank: int, world: int) -> list[object]:
    """A block split by our styles, next to the whole one."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import parallelize_module

    mesh, lines = init_device_mesh("cpu", (world,)), []
    for sequence in (False, True):
        for rows in (8, 260):
            torch.manual_seed(3)
            whole = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.SiLU(), torch.nn.Linear(32, 16))
            whole = whole.to(torch.bfloat16)
            x, g = (torch.randn(1, rows, 16).to(torch.bfloat16) for _ in range(2))
            mine = slice(rank * rows // world, (rank + 1) * rows // world) if sequence else slice(None)
            styles = distributed.ColwiseParallel(sequence=sequence), distributed.RowwiseParallel(sequence=sequence)
            split = parallelize_module(copy.deepcopy(whole), mesh, dict(zip("02", styles, strict=True)))
            ours, theirs = (x[:, mine].clone().requires_grad_(), x.clone().requires_grad_())
            found, right = split(ours), whole(theirs)
            found.backward(g[:, mine])
            right.backward(g)
            pairs = [
                (found, right[:, mine]), (ours.grad, theirs.grad[:, mine]),
                (split[0].weight.grad, whole[0].weight.grad.chunk(world)[rank]),
                (split[2].weight.grad, whole[2].weight.grad.chunk(world, 1)[rank]),
            ]  # fmt: skip
            worst = max(
                float((a.detach().float() - b.detach().float()).norm() / b.detach().float().norm()) for a, b in pairs
            )
            lines.append(f"{sequence} {rows} {worst < TOLERANCE}")
    return lines


def on_cpus(rank, world, port, folder):
    begin(rank, world, port, "gloo")
    lines = [
        *agreements(rank),
        "gradients",
        *gradients(rank, world),
        "names",
        *under_pytorch_s_names(rank, world),
        "layers",
        *layers(rank, world),
    ]
    end(folder, rank, lines)


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[list[str]]:
    """What two processes found, by rank."""
    return spawn(on_cpus, 2, tmp_path_factory.mktemp("two"))


def part(lines: list[str], name: str) -> list[str]:
    """The lines behind a name, up to the next."""
    begin = lines.index(name) + 1
    end = next((at for at in range(begin, len(lines)) if " " not in lines[at]), len(lines))
    return lines[begin:end]


@pytest.mark.full
def test_ranks_that_differ_or_do_not_come_are_named_and_the_group_begins_anew(two):
    first, second = (lines[: lines.index("gradients")] for lines in two)
    assert first == ["agreed", "peer-call True", "peer-timeout True", "True", "agreed"]
    assert second[0] == second[-1] == "agreed" and second[1].startswith("peer-call")


@pytest.mark.full
def test_gradients_and_graphs_are_those_of_the_whole_product(two):
    for lines in two:
        assert len(part(lines, "gradients")) == 6
        assert all(line.endswith("True") for line in part(lines, "gradients")), lines


@pytest.mark.full
def test_operations_under_pytorch_s_names_have_gradients(two):
    for lines in two:
        assert len(part(lines, "names")) == 8
        assert all(line.endswith("True") for line in part(lines, "names")), lines


@pytest.mark.full
def test_layers_split_by_our_styles_compute_what_the_whole_ones_do(two):
    for lines in two:
        assert len(part(lines, "layers")) == 4
        assert all(line.endswith("True") for line in part(lines, "layers")), lines


# -- on GPUs ---------------------------------------------------------------------------------------------------------


def calls_on_gpus(rank, world, port, folder):
    begin(rank, world, port, "nccl")
    device, lines = torch.device("cuda", rank), []
    torch.cuda.set_device(device)
    generator = torch.Generator(device).manual_seed(rank)

    def normal(*shape):
        return torch.randn(shape, device=device, dtype=torch.bfloat16, generator=generator)

    def away(found, right):
        return float((found.float() - right).norm() / right.norm()) < TOLERANCE

    for m, n, k in ((1, 264, 72), (17, 4096, 1024), (128, 8192, 2048), (100, 520, 4096), (64, 28672, 512)):
        a, b = normal(m, k), normal(n, k).mT
        right = a.float() @ b.float()
        dist.all_reduce(right)
        lines.append(
            f"all-reduce {m} {n} {k} {all(away(distributed.matmul_all_reduce(a, b), right) for _ in range(3))}"
        )
    m, n, k = 512, 768, 1024
    a, b = normal(m, k), normal(n, k).mT
    right = a.float() @ b.float()
    dist.all_reduce(right)
    mine = slice(rank * m // world, (rank + 1) * m // world)
    scattered = all(away(distributed.matmul_reduce_scatter(a, b), right[mine]) for _ in range(3))
    whole = torch.empty(m * world, k, device=device, dtype=a.dtype)
    dist.all_gather_into_tensor(whole, a)
    gathered = all(away(distributed.all_gather_matmul(a, b), whole.float() @ b.float()) for _ in range(3))
    lines.append(f"others {scattered} {gathered}")

    few = normal(16, 2048), normal(4096, 2048).mT
    sums = few[0].float() @ few[1].float()
    dist.all_reduce(sums)
    captured = [
        (distributed.matmul_all_reduce, few, {}, sums), (distributed.matmul_reduce_scatter, (a, b), {}, right[mine]),
        *((distributed.all_gather_matmul, (a, b), {"by": by}, whole.float() @ b.float()) for by in ("push", "copy")),
    ]  # fmt: skip
    for product, operands, options, expected in captured:
        out = torch.empty_like(expected, dtype=a.dtype)
        product(*operands, out=out, **options)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            product(*operands, out=out, **options)
        replayed = True
        for _ in range(5):
            out.zero_()
            graph.replay()
            replayed = replayed and away(out, expected)
        lines.append(f"graph {product.__name__} {replayed}")
    a, b = few

    distributed.release()
    with config.override(peer_timeout_s=2.0):
        for product in (
            distributed.matmul_all_reduce,
            distributed.matmul_reduce_scatter,
            distributed.all_gather_matmul,
        ):
            product(a, b)
            distributed.check()
            named = ""
            if rank != 1:
                product(a, b)  # rank 1 never comes
                try:
                    distributed.check()
                except PeerError as error:
                    named = f"{error.code} {'rank 1' in str(error)}"
            dist.barrier()
            distributed.reset()
            lines.append(f"missing {named}")
    right = a.float() @ b.float()
    dist.all_reduce(right)
    lines.append(f"anew {away(distributed.matmul_all_reduce(a, b), right)}")
    distributed.check()
    end(folder, rank, lines)


@pytest.mark.gpu
@pytest.mark.parametrize("world", [2, 4])
def test_gpus_compute_replay_and_outlive_a_rank_that_does_not_come(world, tmp_path):
    if torch.cuda.device_count() < world:
        pytest.skip(f"needs {world} GPUs")
    for rank, lines in enumerate(spawn(calls_on_gpus, world, tmp_path)):
        for line in lines:
            assert "False" not in line, (rank, line)
        missing = [line for line in lines if line.startswith("missing")]
        assert missing == ["missing " if rank == 1 else "missing peer-timeout True"] * 3
        assert lines[-1] == "anew True"
