"""torch.compile with CUDA graphs: nothing of this library may stay in the pool of torch's graphs."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

import warploom  # noqa: E402
import warploom.torch  # noqa: E402
from warploom.runtime import torch_graph_trees  # noqa: E402

TREES = "torch._inductor.cudagraph_trees"


def test_there_is_no_stream_before_torch_compiles_with_graphs(monkeypatch):
    monkeypatch.delitem(sys.modules, TREES, raising=False)
    assert torch_graph_trees.stream_of_trees(0) is None
    monkeypatch.setitem(sys.modules, TREES, SimpleNamespace(get_manager=lambda index, create_if_none_exists: None))
    assert torch_graph_trees.stream_of_trees(0) is None


def test_the_stream_is_that_of_the_gpu_s_trees(monkeypatch):
    managers = {1: SimpleNamespace(stream=SimpleNamespace(cuda_stream=72))}
    found = SimpleNamespace(get_manager=lambda index, create_if_none_exists: managers.get(index))
    monkeypatch.setitem(sys.modules, TREES, found)
    assert [torch_graph_trees.stream_of_trees(index) for index in (0, 1)] == [None, 72]


def test_what_is_made_outside_is_made_in_another_thread_and_complete(monkeypatch):
    waited = []
    monkeypatch.setattr(torch.cuda, "device", lambda index: nullcontext())
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: waited.append(threading.get_ident()))
    )
    made = torch_graph_trees.outside_of_trees(0, threading.get_ident)
    assert made != threading.get_ident() and waited == [made]
    with pytest.raises(ZeroDivisionError):
        torch_graph_trees.outside_of_trees(0, lambda: 1 // 0)


def normal(*shape):
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16, generator=torch.Generator("cuda").manual_seed(1))


def attention(length):
    q, k, v = normal(2, 4, length, 128), normal(2, 2, length, 128), normal(2, 2, length, 128)
    return lambda q, k, v: warploom.attention(q * 1, k, v, causal=True) + 1, (q, k, v)


def block_mask(length):
    from torch.nn.attention.flex_attention import create_block_mask

    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device="cuda")
    q, k, v = normal(1, 2, length, 128), normal(1, 2, length, 128), normal(1, 2, length, 128)
    return lambda q, k, v: warploom.torch.flex_attention(q * 1, k, v, block_mask=mask) + 1, (q, k, v)


def decode(length):
    q, k, v = normal(2, 8, 1, 128), normal(2, 2, length, 128), normal(2, 2, length, 128)
    lengths = torch.tensor([length, length // 2], dtype=torch.int32, device="cuda")
    return lambda q, k, v: warploom.attention_decode(q * 1, k, v, lengths) + 1, (q, k, v)


def split_product(length):
    a, b = normal(256, 16 * length), normal(512, 16 * length)  # few tiles, and a long K
    return lambda a, b: warploom.matmul(a * 1, b.mT) + 1, (a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("made", [attention, block_mask, decode, split_product])
def test_calls_in_graphs_of_torch_compile_are_the_eager_ones(made):
    torch._dynamo.reset()
    for length in (512, 1024):  # a second graph, and larger workspaces
        function, inputs = made(length)
        compiled = torch.compile(function, mode="reduce-overhead", dynamic=False)
        with torch.no_grad():
            for seed in range(5):  # torch warms up, records, and replays
                inputs = [torch.roll(each, seed, -1).contiguous() for each in inputs]
                assert torch.equal(compiled(*inputs).clone(), function(*inputs))


GRADIENTS = """
import torch, warploom, warploom.torch

def attend(q, k, v):
    return warploom.attention(q * 1, k, v, causal=True) + 1

like = {"device": "cuda", "dtype": torch.bfloat16, "requires_grad": True}
inputs = [torch.randn(2, heads, 512, 128, **like) for heads in (4, 2, 2)]
compiled = torch.compile(attend, mode="reduce-overhead", dynamic=False)
for _ in range(5):
    found = torch.autograd.grad(compiled(*inputs).float().square().sum(), inputs)
    expected = torch.autograd.grad(attend(*inputs).float().square().sum(), inputs)
    print(all(map(torch.equal, found, expected)))
"""


@pytest.mark.gpu
def test_gradients_of_attention_in_graphs_of_torch_compile_are_the_eager_ones():
    """In a process of its own: torch expects that garbage is collected, which `conftest` puts off."""
    told = subprocess.run([sys.executable, "-c", GRADIENTS], capture_output=True, text=True, check=False)
    assert told.stdout.split() == ["True"] * 5, told.stderr[-2000:]
