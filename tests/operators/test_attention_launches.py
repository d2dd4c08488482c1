"""Attention on a mock GPU: the driver calls of a decoding step, also during graph capture."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("needs_ptxas")
SLOW = pytest.mark.slow

SAID = """
import ctypes, os
def say(word):
    with open(os.environ["FAKE_CUDA_LOG"], "a") as log: log.write(word + "\\n")
def capture(number): ctypes.CDLL(None).setenv(b"FAKE_CUDA_CAPTURING", str(number).encode(), 1)
q, k, v = bf16(2, 8, 1, 64), bf16(2, 2, 96, 64), bf16(2, 2, 96, 64)
lengths, table = torch.tensor([5, 90], dtype=torch.int32), torch.tensor([[3, 1], [0, 2]], dtype=torch.int32)
pages = bf16(4, 2, 48, 64), bf16(4, 2, 48, 64)
out, lse = bf16(2, 8, 1, 64), torch.empty(2, 8, 1)
"""


def kinds(text: str) -> list[str]:
    return [line.split(" ")[0] for line in text.strip().splitlines()]


@pytest.mark.parametrize("call", [
    "warploom.attention_decode(q, k, v, lengths, out=out, lse=lse)",
    pytest.param("warploom.attention_decode(q, *pages, lengths, table=table, out=out, lse=lse)", marks=SLOW),
    pytest.param("warploom.attention(big, k, v, causal=True, out=large, lse=sums)", marks=SLOW),
])  # fmt: skip
def test_a_layer_after_the_first_only_launches_whatever_the_lengths_are(on_gpu, call: str) -> None:
    log = on_gpu(SAID + f"""
big, large, sums = bf16(2, 8, 70, 64), bf16(2, 8, 70, 64), torch.empty(2, 8, 70)
for layer in range(3):
    {call}
    say("layer")
    lengths.copy_(torch.tensor([7, 96 - layer]))
""")  # fmt: skip
    first, second, third, _ = "\n".join(log).split("layer")
    assert kinds(first).count("launch") == 1
    assert kinds(second) == ["launch"] and second.strip() == third.strip()


def test_a_step_of_a_graph_of_torch_keeps_no_memory_and_launches_once_each_time(on_gpu) -> None:
    log = on_gpu(SAID + """
from warploom.operators.attention.decode import attention_step
from warploom.operators.workspace import workspaces
for layer in range(2):
    attention_step({"q": q, "k": k, "v": v, "lengths": lengths}, numbers={}, layout="bhsd", causal=True, scale=None,
                   window=None, softcap=None, constant_lengths=False)
    say(f"held-{len(workspaces()._held) + len(workspaces()._of_graph)}")
""")  # fmt: skip
    assert [line for line in kinds("\n".join(log)) if line == "launch" or line.startswith("held")] == [
        "launch", "held-0", "launch", "held-0"
    ]  # fmt: skip


@pytest.mark.full
def test_a_captured_step_is_one_launch_for_each_layer_with_memory_of_its_own(on_gpu) -> None:
    log = on_gpu(
        SAID
        + """
layers = [(bf16(2, 2, 9600, 64), bf16(2, 2, 9600, 64)) for _ in range(5)]  # too many keys for a cluster per head
k, v = layers.pop()
warploom.attention_decode(q, k, v, lengths, out=out, lse=lse)
from warploom.operators.attention import decode
made = []
real = decode.of_stream
decode.of_stream = lambda *given: made.append(real(*given)) or made[-1]
say("capture"); capture(1)
for keys, values in layers:
    warploom.attention_decode(q, keys, values, lengths, out=out, lse=lse)
say("end"); capture(2)
for keys, values in layers:
    warploom.attention_decode(q, keys, values, lengths, out=out, lse=lse)
say("another graph")
addresses = [array.pointer for array in made]
assert len(set(addresses[:8])) == 2, "the layers of a graph share their memory"
assert not set(addresses[:8]) & set(addresses[8:]), "another graph has its own"
"""
    )
    captured = "\n".join(log).split("capture\n")[1].split("end")[0]
    assert kinds(captured).count("launch") == 4
    assert "synchronize" not in captured and "load ELF" not in captured


@pytest.mark.parametrize("options, launches", [
    ("causal=True", 3),
    pytest.param("window=(16, 0)", 3, marks=SLOW),
    pytest.param("softcap=5.0", 3, marks=SLOW),
    pytest.param("score_mod=lambda s, b, h, i, j: s - slope[h] * (i - j), block_mask=mask", 3, marks=SLOW),
])  # fmt: skip
def test_repeated_gradients_only_launch(on_gpu, options: str, launches: int) -> None:
    log = on_gpu(SAID + f"""
from warploom.operators.attention import gradients, mask_lists
from torch.nn.attention.flex_attention import create_block_mask
q, slope = bf16(2, 8, 96, 64), torch.rand(8)
mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 96, 96, "cpu", BLOCK_SIZE=32)
out, lse, grad = bf16(2, 8, 96, 64), torch.empty(2, 8, 96), bf16(2, 8, 96, 64)
for layer in range(3):
    found = warploom.attention_backward(q, k, v, out, lse, grad, {options})
    assert [x.shape for x in found] == [q.shape, k.shape, v.shape]
    say("layer")
    gradients.read = mask_lists.dense_kinds = None          # the long way would fail now
    slope = torch.rand(8)
""")  # fmt: skip
    first, second, third, _ = "\n".join(log).split("layer")
    assert kinds(first).count("launch") == launches
    assert [kind for kind in kinds(second) if kind not in ("map", "")] == ["launch"] * launches
    assert [kind for kind in kinds(third) if kind not in ("map", "")] == ["launch"] * launches
