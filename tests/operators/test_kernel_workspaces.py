"""A kernel with a workspace, called as a function: a repeated call goes straight to the driver there, too."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("needs_ptxas")

KERNEL = """
import ctypes
from examples.hopper import stream_k
from warploom.runtime import dispatch
made, slow, zeros = [], [], dispatch.empty_like_kind
def recorded(model, shape, dtype, zero=False):
    array = zeros(model, shape, dtype, zero=zero)
    if zero:
        made.append(array)
        assert not array.any()
    return array
dispatch.empty_like_kind = recorded
kernel = stream_k.build(stream_k.Config("stream_k", tile_n=64, stages=2))
kernel._caller = Caller(kernel.program())
long_way = kernel._caller._slow
kernel._caller._slow = lambda *arguments: slow.append(1) or long_way(*arguments)
def capture(number): ctypes.CDLL(None).setenv(b"FAKE_CUDA_CAPTURING", str(number).encode(), 1)
a, c, b, out, other = bf16(256, 128), bf16(256, 128), bf16(192, 128), bf16(256, 192), bf16(256, 192)
"""


def streams(log: list[str]) -> list[str]:
    return [line.split(" stream ")[1].split()[0] for line in log if line.startswith("launch")]


def test_only_the_first_call_of_a_kind_in_a_stream_is_checked(on_gpu):
    log = on_gpu(
        KERNEL
        + """
for _ in range(3):
    assert kernel(a, b, out=out) is out
kernel(a, b, out=other), kernel(c, b, out=out), kernel(c, b, out=other)
assert kernel(c, b).shape == (256, 192)
assert len(slow) == 1 + 1, "an output that is given, and one that is made"
assert len(made) == 2, "the sums and the counters"
"""
    )
    assert streams(log) == ["40"] * 7


def test_each_stream_has_a_workspace_of_its_own_and_goes_the_short_way(on_gpu):
    log = on_gpu(
        KERNEL
        + """
for stream in (0x40, 0x50, 0x40, 0x50, 0x40):
    kernel(a, b, out=out)
assert (len(slow), len(made)) == (2, 4)
kernel(a, b, out=out, stream=0x50)           # the current one is 0x40
assert (len(slow), len(made)) == (2, 4)
for _ in range(2):
    kernel(a, b, out=out, stream=0x60)
assert (len(slow), len(made)) == (3, 6)
kernel(a, b, out=out)
stream = 0x60
kernel(a, b, out=out)
assert (len(slow), len(made)) == (3, 6)

kinds = {static[0]: kind for (static, _), kind in kernel._caller.cache.kinds.items()}
assert set(kinds) == {0x40, 0x50, 0x60}
def held(kind):
    (moving,) = kind.launches
    return {int.from_bytes(value, "little") for value in moving.launch.values if len(value) == 8}
first, second = ({array.data_ptr() for array in made[at : at + 2]} for at in (0, 2))
assert first <= held(kinds[0x40]) and second <= held(kinds[0x50]) and not second & held(kinds[0x40])
"""
    )
    assert streams(log) == ["40", "50", "40", "50", "40", "50", "60", "60", "40", "60"]
    waits = [line for line in log if line.startswith("synchronize")]
    assert waits == ["synchronize 40"], "what is zeroed on the current stream is waited for by a launch in another"


def test_a_captured_graph_makes_and_zeroes_its_own(on_gpu):
    on_gpu(
        KERNEL
        + """
kernel(a, b, out=out), kernel(a, b, out=out)
capture(1)
kernel(a, b, out=out)
assert (len(slow), len(made)) == (2, 4)
capture(0)
kernel(a, b, out=out)
assert (len(slow), len(made)) == (2, 4)
"""
    )
