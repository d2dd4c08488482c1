"""A forward with wrappers: its source is rewritten inside the same wrappers, and a residual passes only through
wrappers that forward it."""

from __future__ import annotations

import copy
import functools
import pickle

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import warploom.torch  # noqa: E402
from warploom.integrations.torch import wrapped  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SIZE = 32
X = torch.manual_seed(3) and torch.randn(2, 5, SIZE).bfloat16()


def renames(function):
    """An argument of an older name, as libraries keep one."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if "old" in kwargs:
            kwargs["states"] = kwargs.pop("old")
        return function(*args, **kwargs)

    return wrapper


def without_grad(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        with torch.no_grad():
            return function(*args, **kwargs)

    return wrapper


def doubles(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        result = function(*args, **kwargs)
        return result * 2

    return wrapper


def filters(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        kwargs = {name: value for name, value in kwargs.items() if name == "states"}
        return function(*args, **kwargs)

    return wrapper


def by_position(function):
    @functools.wraps(function)
    def wrapper(self, states):
        return function(self, states)

    return wrapper


class Wrapping(nn.Module):
    """Puts something around the forward of every subclass."""

    seen: list[str] = []

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        inner = cls.forward

        @functools.wraps(inner)
        def outermost(self, *args, **kwargs):
            if type(self).forward is outermost:
                Wrapping.seen.append(type(self).__name__)
            return inner(self, *args, **kwargs)

        cls.forward = outermost


def model_of(*decorators, base=nn.Module):
    class Part(base):
        def __init__(self):
            super().__init__()
            self.one, self.two, self.last = nn.Linear(SIZE, 16), nn.Linear(SIZE, 16), nn.Linear(32, SIZE)

        def forward(self, states):
            return self.last(torch.cat([self.one(states), self.two(states)], dim=-1))

        for decorator in decorators:
            forward = decorator(forward)

    if base is not nn.Module:  # a class derived from one that is wrapped: wrapped twice
        Part = type("Part", (Part,), {})

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Part()

        def forward(self, x):
            y = self.part(x)
            y = x + y
            return y

    torch.manual_seed(0)
    return Model().bfloat16().eval()


def named(decorators):
    return "-".join(getattr(each, "__name__", each) for each in decorators) or "bare"


TOGETHER, ADDS = "together one, two", "adds a residual to its result"


@pytest.mark.parametrize("decorators, told", [
    ((), (TOGETHER, ADDS)), ((renames,), (TOGETHER, ADDS)), ((renames, without_grad), (TOGETHER, ADDS)),
    ((doubles,), (TOGETHER,)), ((filters,), (TOGETHER,)), ((by_position,), (TOGETHER,)),
    ((renames, doubles), (TOGETHER,))], ids=named)  # fmt: skip
@pytest.mark.parametrize("base", [nn.Module, Wrapping], ids=["plain", "wrapping"])
@torch.no_grad()
def test_what_stands_around_a_forward_still_does(decorators, told, base):
    model = model_of(*decorators, base=base)
    ours = warploom.torch.convert(copy.deepcopy(model))
    if base is Wrapping:  # its text does not say what else the class hands on
        told = tuple(each for each in told if each != ADDS or wrapped.passes_on(type(model.part).forward))
    assert warploom.torch.fused(ours) == {"": ("residual",), "part": told}
    Wrapping.seen.clear()
    found, expected = ours(X).float(), model(X).float()
    assert (found - expected).abs().max() < 2**-6 * expected.abs().max()
    assert Wrapping.seen == ["Part", "Part"] * (base is Wrapping)
    if renames in decorators and by_position not in decorators:
        assert torch.equal(ours.part(old=X), ours.part(X))


def test_a_wrapper_passes_on_what_its_text_returns_unchanged():
    def function(self, states): ...

    assert all(wrapped.passes_on(each(function)) for each in (renames, without_grad))
    assert not any(wrapped.passes_on(each(function)) for each in (doubles, filters, by_position))
    assert not wrapped.passes_on(functools.partial(function)) and not wrapped.passes_on(function)


@torch.no_grad()
def test_a_wrapper_that_does_not_hold_the_function_leaves_the_text_alone():
    table = {}

    def by_table(function):
        table["inner"] = function

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return table["inner"](*args, **kwargs)

        return wrapper

    model = model_of(by_table)
    ours = warploom.torch.convert(copy.deepcopy(model))
    assert "part" not in warploom.torch.fused(ours)
    expected = model(X).float()
    assert (ours(X).float() - expected).abs().max() < 2**-6 * expected.abs().max()


class Kept(Wrapping):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(SIZE, 16), nn.Linear(SIZE, 16)

    @renames
    def forward(self, states):
        return self.one(states) + self.two(states)


@torch.no_grad()
def test_a_wrapped_module_is_pickled():
    ours = warploom.torch.convert(Kept().bfloat16())
    again = pickle.loads(pickle.dumps(ours))
    assert warploom.torch.fused(again) == {"": (TOGETHER,)}
    assert torch.equal(again(X), ours(X))
