"""Repeated calls with functions of scores and masks only launch, with what the functions capture now."""

from __future__ import annotations

import functools
import gc
import math
import weakref
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.driver.mock_gpu import IMPORTED  # noqa: E402
from tests.operators.conftest import TENSORS  # noqa: E402
from tests.operators.test_launch_anywhere import MOVING, launches  # noqa: E402
from warploom.operators.attention.blocks import MASK_TENSORS  # noqa: E402
from warploom.operators.attention.captured import captured, read  # noqa: E402
from warploom.operators.attention.mask_lists import MaskCache  # noqa: E402

# -- what a function reads -------------------------------------------------------------------------------------------

STEP = 2


class Holder:
    """An object with tensors."""

    def __init__(self) -> None:
        self.bias, self.numbers = torch.arange(3.0), [torch.arange(2.0)]


def scaled(by: Any) -> Any:
    return lambda s, b, h, i, j: s * by


def wrapped(by: Any) -> Any:
    return functools.wraps(torch.nn.functional.silu)(lambda x: torch.abs(x) * by)


def biased(table: Any, held: Any) -> Any:
    return lambda s, b, h, i, j: s + table[h] + held.bias[h] + held.numbers[0][h]


def of_global() -> Any:
    return lambda s, b, h, i, j: s * STEP


def token(function: Any) -> Any:
    return read(function, "score_mod").token


def test_functions_with_the_same_code_that_capture_the_same_are_traced_once() -> None:
    table = torch.arange(4.0)
    pairs = [
        (scaled(0.5), scaled(1 / 2)),
        (scaled(table), scaled(table + 1)),
        (scaled([1, table[0]]), scaled([1, table[1]])),
        (functools.partial(scaled(1.5), h=0), functools.partial(scaled(1.5), h=0)),
    ]
    for first, second in pairs:
        assert token(first) == token(second)
        assert hash(token(first)) == hash(token(second))
    assert captured(scaled(table), "score_mod").function is captured(scaled(table + 1), "score_mod").function
    assert captured(scaled(table), "score_mod").given[0] is table


@pytest.mark.parametrize("one, other", [
    (1, 1.0), (0.0, -0.0), (True, 1), (1.0, math.nextafter(1.0, 2)), ("exp", torch.exp), (torch.exp, math.exp),
    ((1, 2), [1, 2]), ((1, 2), (1, 2, 3)), ({"a": 1}, {"b": 1}), (None, 0), (scaled(1), scaled(2)),
    (torch.float32, "torch.float32"), (1, torch.tensor(1)), ({1: 2}.get, {1: 3}.get),
    (wrapped(2), wrapped(3)),
])  # fmt: skip
def test_what_a_function_captures_is_told_apart(one: Any, other: Any) -> None:
    assert token(scaled(one)) != token(scaled(other))


HALF, THIRD = 0.5, 0.25


@pytest.mark.parametrize("one, other", [
    (lambda s, b, h, i, j: torch.exp(torch.sin(s)), lambda s, b, h, i, j: torch.sin(torch.exp(s))),
    (lambda s, b, h, i, j: s * HALF - THIRD, lambda s, b, h, i, j: s * THIRD - HALF),
    (lambda s, b, h, i, j: (lambda: s.exp().sin())(), lambda s, b, h, i, j: (lambda: s.sin().exp())()),
    (lambda s, b, h, i, j: (lambda x, y: x - y)(x=s, y=i), lambda s, b, h, i, j: (lambda y, x: x - y)(x=s, y=i)),
])  # fmt: skip
def test_functions_that_differ_only_in_the_order_of_their_names_are_other_kernels(one: Any, other: Any) -> None:
    assert captured(one, "score_mod").function.key != captured(other, "score_mod").function.key


def test_what_has_changed_inside_of_what_is_captured_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers, table, held = [1.0, 2.0], {"a": 1}, SimpleNamespace(by=1.0, inner=SimpleNamespace(by=3))
    module = ModuleType("module_of_a_user")
    module.BY = 2  # type: ignore[attr-defined]
    of_objects = lambda s, b, h, i, j: s * held.by * held.inner.by  # noqa: E731
    functions = [scaled(numbers), scaled(table), of_objects, of_global(), lambda s, b, h, i, j: s * module.BY]
    before = [token(each) for each in functions]
    assert before == [token(each) for each in functions]
    numbers[1], table["a"], held.inner.by, module.BY = 3.0, 2, 4, 3  # type: ignore[attr-defined]
    monkeypatch.setitem(globals(), "STEP", 3)
    assert not any(token(each) == was for each, was in zip(functions, before, strict=True))
    inside = before[3]
    monkeypatch.setitem(globals(), "STEP", 2)
    assert token(functions[3]) == inside
    functions[3].__code__ = (lambda s, b, h, i, j: s + STEP).__code__
    assert token(functions[3]) != inside


def test_a_captured_tensor_may_have_an_interface_that_raises() -> None:
    class OfGpu(torch.Tensor):  # as one of torch on a GPU that requires a gradient
        @property
        def __cuda_array_interface__(self) -> Any:
            raise RuntimeError("use detach()")

    table = torch.arange(4.0).as_subclass(OfGpu)
    assert read(scaled(table), "score_mod").arrays["score_0"] is table


def test_a_traced_function_keeps_nothing_alive_that_its_caller_owns() -> None:
    table, holder = torch.arange(4.0), Holder()
    function = biased(table, holder)
    made = captured(function, "score_mod").function
    refs = [weakref.ref(each) for each in (table, holder, holder.bias, holder.numbers[0], function)]
    del table, holder, function
    gc.collect()
    assert made is not None and [ref() for ref in refs] == [None] * 5


# -- what is computed of a mask --------------------------------------------------------------------------------------


def mask_of(*blocks: int) -> SimpleNamespace:
    """Blocks by their number in the second row; torch's type is not needed."""
    return SimpleNamespace(**dict.fromkeys(MASK_TENSORS)) if not blocks else SimpleNamespace(
        kv_num_blocks=torch.tensor([[[len(blocks)]]]), kv_indices=torch.tensor([[[list(blocks)]]]),
        full_kv_num_blocks=None, full_kv_indices=None,
    )  # fmt: skip


class Counted:
    """What a mask says at each computation."""

    def __init__(self, cache: MaskCache) -> None:
        self.cache, self.count = cache, 0

    def of(self, mask: Any, stream: int | None = 7, name: str = "lists") -> list[int]:
        """The numbers of its blocks, as they were computed."""

        def make() -> list[int]:
            self.count += 1
            return mask.kv_indices.flatten()[: int(mask.kv_num_blocks)].tolist()

        return self.cache.get(mask, name, stream, make)


def test_lists_of_a_mask_are_computed_again_only_if_it_was_written() -> None:
    cache = MaskCache()
    counted, mask = Counted(cache), mask_of(3, 5)
    assert [counted.of(mask) for _ in range(3)] == [[3, 5]] * 3 and counted.count == 1
    mask.kv_indices[0, 0, 0, 1] = 6
    assert counted.of(mask) == [3, 6] == counted.of(mask) and counted.count == 2
    mask.kv_num_blocks.fill_(1)
    assert counted.of(mask) == [3] and counted.count == 3
    mask.kv_indices = torch.tensor([[[[8, 9]]]])
    assert counted.of(mask) == [8] and counted.count == 4
    mask.kv_indices.data = torch.tensor([[[[7, 9]]]])  # other memory, which torch does not count
    assert counted.of(mask) == [7] and counted.count == 5
    counted.of(mask_of(7, 9)), counted.of(mask, name="kinds")
    assert counted.count == 7


def test_every_stream_has_its_own_lists_and_a_capture_keeps_none() -> None:
    cache = MaskCache()
    counted, mask = Counted(cache), mask_of(3)
    for stream in (7, 8, 7, 8):
        counted.of(mask, stream)
    assert counted.count == 2
    counted.of(mask, None), counted.of(mask, None)
    assert counted.count == 4


def test_masks_without_versions_are_computed_anew() -> None:
    with torch.inference_mode():
        mask = mask_of(3)
        counted = Counted(MaskCache())
        assert counted.of(mask) == [3]
        mask.kv_indices.fill_(4)
        assert counted.of(mask) == [4]


def test_what_is_kept_of_a_mask_goes_with_it_and_a_later_one_at_its_place_has_its_own() -> None:
    cache = MaskCache()
    counted = Counted(cache)
    for number in range(50):  # CPython gives ids again
        mask = mask_of(number)
        assert counted.of(mask) == [number] == counted.of(mask)
        assert len(cache) == 1
        del mask
        gc.collect(0)
    gc.collect()
    assert len(cache) == 0 and counted.count == 50


# -- launches --------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.usefixtures("needs_ptxas")
def test_a_repeated_call_only_launches_and_computes_with_what_is_captured_and_masked_now(pretend: Any) -> None:
    log = pretend(TENSORS + MOVING + """
import ctypes, gc, os, weakref
from concurrent.futures import ThreadPoolExecutor
import warploom.torch as wt
from torch.nn.attention.flex_attention import create_block_mask
from warploom.operators.attention import calls, mask_lists
def say(word):
    with open(os.environ["FAKE_CUDA_LOG"], "a") as log: log.write(word + "\\n")
q, k, v = bf16(1, 2, 32, 16), bf16(1, 2, 128, 16), bf16(1, 2, 128, 16)
at = torch.meshgrid(*(torch.arange(n) for n in (1, 2, 32, 128)), indexing="ij")
lists, made = mask_lists.tile_lists, []
mask_lists.tile_lists = lambda *given: made.append(1) or lists(*given)
slope, step, cut = torch.tensor([0.1, 0.3]), 2, torch.tensor([40])
def masked(cut):
    return create_block_mask(lambda b, h, i, j: j < cut[0], None, None, 32, 128, "cpu", BLOCK_SIZE=64)
def call(seen, slope=None):
    slope = globals()["slope"] if slope is None else slope
    score_mod = lambda s, b, h, i, j: s - slope[h] * (i - j) / step          # a new function in each call
    scores = score_mod(q.double() @ k.double().mT / 4, *at).masked_fill(at[3] >= seen, -torch.inf)
    close(wt.flex_attention(q, k, v, score_mod, mask), torch.softmax(scores, -1) @ v.double())
mask = masked(cut)
call(40), say("first")
read, calls.read = calls.read, long_way
call(40), say("second")
slope.neg_(), call(40)                       # the captured tensor has other elements
slope = torch.tensor([0.2, -0.1])
call(40)                                     # another tensor
step = 3
with pytest.raises(AssertionError, match="checked again"):
    call(40)                                 # a number is part of the kernel
step, earlier = 2, weakref.ref(slope)
slope = torch.tensor([[0.2, 0.5], [9.0, 9.0]]).mT[0]
with pytest.raises(AssertionError, match="checked again"):
    call(40)                                 # a tensor with other strides
slope = torch.tensor([0.2, 0.5])
gc.collect()
assert earlier() is None
assert len(made) == 1
cut.fill_(50), call(50)                      # the mask's function captures other elements
first, mask = mask, masked(torch.tensor([100]))
call(100)                                    # a new mask of the same shape
other, mask = mask, first
call(50)
assert len(made) == 2
for name in mask_lists.MASK_TENSORS:
    getattr(mask, name).copy_(getattr(other, name))
cut.fill_(100), call(100)                    # edited in place
assert len(made) == 3
run, lock, barrier = executing.Executor.run, threading.Lock(), threading.Barrier(2, timeout=60)
def together(*arguments):                    # both calls have written their parameters before either kernel runs
    barrier.wait()
    with lock: run(*arguments)
executing.Executor.run = together
with ThreadPoolExecutor(2) as pool:
    list(pool.map(call, (100, 100), (torch.tensor([0.3, 0.9]), torch.tensor([-0.3, 0.1]))))
executing.Executor.run, calls.read = run, read
def capture(number): ctypes.CDLL(None).setenv(b"FAKE_CUDA_CAPTURING", str(number).encode(), 1)
assert len(made) == 3
capture(1), call(100), call(100), capture(0)
assert len(made) == 5, "a graph computes its lists in each replay"
indices = weakref.ref(mask.kv_indices)
assert len(mask_lists.masks()) == 2
del mask, other, first
gc.unfreeze()                                # what was garbage at the first launch
gc.collect()
assert indices() is None and len(mask_lists.masks()) == 0
""", imported=IMPORTED)  # fmt: skip
    first, rest = "\n".join(log).split("first\n")
    second, _ = rest.split("second\n")
    assert "load ELF" in first and "load ELF" not in rest
    assert {line.split(" ")[0] for line in second.splitlines()} <= {"launch", "map"}, "a new result has its own map"
    assert len(launches(log)) == 12
