"""A repeated call is one guard and the driver's calls; if anything has changed, it takes the full path."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.integrations.test_torch_distributed import Alone  # noqa: E402
from warploom.integrations.torch import peer_launch_cache  # noqa: E402

FORM = ("product", "push")


class Launch:
    """A launch that counts how often it was enqueued on each stream."""

    def __init__(self) -> None:
        self.on: list[int] = []
        self.calls: dict = {}

    def __call__(self, stream: int) -> None:
        self.calls[stream] = lambda: self.on.append(stream) or 0
        self.calls[stream]()

    def check(self, status: int, stream: int) -> None:
        raise AssertionError(status)


class Kernel:
    def __init__(self) -> None:
        self.launch = Launch()

    def launch_of(self, *arguments, out):
        return self.launch


class Exchange:
    def __init__(self) -> None:
        self.host = [0]


@pytest.fixture
def case(monkeypatch):
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0x40, raising=False)
    group, kernel, exchange = Alone(), Kernel(), Exchange()
    a, b, out = torch.zeros(4, 8), torch.zeros(8, 6), torch.zeros(4, 6)
    peer_launch_cache.remember(group, FORM, (a, b, None), out, (kernel, (a, b), out), exchange)
    return group, kernel.launch, exchange, (a, b, None), out


def test_the_same_call_is_launched_again_and_gives_its_output(case):
    group, launch, _, tensors, out = case
    for count in (1, 2):
        assert peer_launch_cache.again(group, FORM, tensors, out) == (out, None)
        assert launch.on == [0x40] * count


def test_an_output_that_is_not_known_is_made_and_handed_on(case):
    group, launch, _, tensors, _ = case
    found, made = peer_launch_cache.again(group, FORM, tensors, None)
    assert found is None and made.shape == (4, 6) and not launch.on


def watched(tensor):
    return tensor.detach().requires_grad_()


OTHERS = {
    "another form": lambda case: (case[0], ("product", "copy"), case[3], case[4]),
    "other rows at the same place": lambda case: (case[0], FORM, (case[3][0][:2], *case[3][1:]), case[4]),
    "another type": lambda case: (case[0], FORM, (case[3][0].view(torch.int32), *case[3][1:]), case[4]),
    "a transposed view": lambda case: (case[0], FORM, case[3], case[4].as_strided((4, 6), (1, 4))),
    "a gradient that is wanted": lambda case: (case[0], FORM, (watched(case[3][0]), *case[3][1:]), case[4]),
    "no tensor": lambda case: (case[0], FORM, ("a", *case[3][1:]), case[4]),
}  # fmt: skip


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_what_differs_in_anything_takes_the_long_way(case, other):
    group, form, tensors, out = other(case)
    assert peer_launch_cache.again(group, form, tensors, out) == (None, out)
    assert not case[1].on


def test_a_wait_that_was_given_up_takes_the_long_way_which_raises(case):
    group, launch, exchange, tensors, out = case
    exchange.host[0] = 1
    assert peer_launch_cache.again(group, FORM, tensors, out) == (None, out) and not launch.on


def test_what_a_group_forgets_is_not_launched_again(case):
    group, launch, _, tensors, out = case
    group.forget()
    assert peer_launch_cache.again(group, FORM, tensors, out) == (None, out) and not launch.on


def test_copies_are_enqueued_around_the_launch(case):
    group, launch, exchange, (a, b, _), out = case
    order: list[str] = []

    class Transfers:
        class side:  # noqa: N801
            begin = staticmethod(lambda stream, sources: order.append(f"begin {stream:x} {sources}"))
            end = staticmethod(lambda stream, sources: order.append(f"end {stream:x} {sources}"))

    kernel = Kernel()
    kernel.launch.calls[0x40] = lambda: order.append("kernel") or 0
    form = ("product", "copy")
    peer_launch_cache.remember(group, form, (a, b, None), out, (kernel, (a, b), out), exchange, Transfers, [7])
    assert peer_launch_cache.again(group, form, (a, b, None), out)[0] is out
    assert order == ["begin 40 (7,)", "kernel", "end 40 (7,)"]
