"""A remembered launch follows its tensors: the mock GPU executes (tests/driver/executing.py), results are compared."""

from __future__ import annotations

import pytest

from tests.driver.mock_gpu import IMPORTED
from tests.operators.conftest import TENSORS

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("needs_ptxas")]


def launches(log: list[str]) -> list[str]:
    return [line for line in log if line.startswith("launch")]


MOVING = """
from tests.driver import executing
from warploom.operators import calls, norm
executing.install()
torch.manual_seed(0)
held = []                                    # so that no memory comes again
def fresh(*shape): held.append(bf16(*shape)); return held[-1]
def close(found, exact): assert (found.double() - exact).abs().max() < 0.02 * exact.abs().max()
def long_way(*arguments, **options): raise AssertionError("checked again")
"""


def test_a_call_computes_with_the_memory_it_is_given_wherever_that_is(pretend):
    log = pretend(
        TENSORS
        + MOVING
        + """
def call():
    x, w, gate, line = fresh(8, 64), fresh(32, 64), fresh(8, 32), fresh(32)
    exact = x.double() @ w.double().T
    close(warploom.linear(x, w), exact)
    close(warploom.linear(x, w, line, gate=gate), (exact + line.double()) * gate.double())
    rows = x.double() / x.double().pow(2).mean(-1, keepdim=True).add(1e-6).sqrt()
    close(warploom.rms_norm(x, w[0]), rows * w[0].double())
    a, b, out = fresh(2, 8, 64), fresh(2, 64, 32), fresh(2, 8, 32)
    assert warploom.matmul(a, b, out=out) is out
    close(out, a.double() @ b.double())      # two launches, the second at offsets
    a = fresh(16, 128)[8:, 64:]
    close(warploom.linear(a, w), a.double() @ w.double().T)
call()
calls.compute = norm.why_not = long_way
for _ in range(2):
    call()
assert not CACHE.hits, "addresses that never come again are not remembered"
""",
        imported=IMPORTED,
    )
    assert len(launches(log)) == 3 * 6


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("dense", [True, False], ids=["(B, G, T, D)", "(B, T, G, D)"])
def test_a_step_over_a_cache_that_has_grown_is_not_checked_again(pretend, dense: bool):
    log = pretend(
        TENSORS
        + MOVING
        + f"dense = {dense}"
        + """
from warploom.operators.attention import decode
q, lengths = bf16(2, 1, 4, 64), torch.tensor([9, 20], dtype=torch.int32)
def cache(keys): return fresh(2, 2, keys, 64).transpose(1, 2) if dense else fresh(2, keys, 2, 64)
def step(keys):
    lengths[1] = keys
    k, v = cache(keys), cache(keys)
    found = decode.attention_decode(q, k, v, lengths, layout="bshd")
    for sequence, count in enumerate(lengths.tolist()):
        seen = [each[sequence, :count].double().repeat_interleave(2, 1) for each in (k, v)]
        p = torch.einsum("rhd,thd->hrt", q[sequence].double(), seen[0]).div(8).softmax(-1)
        close(found[sequence], torch.einsum("hrt,thd->rhd", p, seen[1]))
step(20)
read, decode.read = decode.read, long_way
for keys in (21, 22, 70, 22):
    step(keys)
with pytest.raises(AssertionError, match="checked again"):
    step(300)                                # another choice of a kernel
decode.read = read
step(300)
decode.read = long_way
step(301)
with pytest.raises(AssertionError, match="checked again"):
    decode.attention_decode(q, cache(23), cache(24), lengths, layout="bshd")
with pytest.raises(AssertionError, match="checked again"):
    decode.attention_decode(q, fresh(2, 2, 30, 128).transpose(1, 2)[..., :64], cache(30), lengths, layout="bshd")
""",
        imported=IMPORTED,
        FAKE_CUDA_SMS=16,  # the emulator runs the whole grid
    )
    assert len(launches(log)) == 7


def test_threads_that_call_at_once_each_get_their_own_results(pretend):
    pretend(
        TENSORS
        + MOVING
        + """
from concurrent.futures import ThreadPoolExecutor
w = bf16(32, 64)
warploom.linear(bf16(8, 64), w)
calls.compute = long_way
run = executing.Executor.run
barrier = threading.Barrier(2, timeout=20)
def together(*arguments):                    # both calls have written their parameters before either kernel runs
    barrier.wait()
    with lock:
        run(*arguments)
lock = threading.Lock()
executing.Executor.run = together
def product(number):
    x = torch.full((8, 64), float(number)).bfloat16()
    return x, warploom.linear(x, w)
with ThreadPoolExecutor(2) as pool:
    for x, found in pool.map(product, range(1, 3)):
        close(found, x.double() @ w.double().T)
""",
        imported=IMPORTED,
    )
