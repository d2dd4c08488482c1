"""Every public `build` of a kernel, with arguments of the wrong kind: a clear error before any work."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.errors import refused
from warploom import kernels
from warploom.errors import ArgumentTypeError
from warploom.kernels.fields import builder


def _builders() -> Iterator[tuple[str, Callable[..., object]]]:
    for folder in ("hopper", "blackwell"):
        package = importlib.import_module(f"{kernels.__name__}.{folder}")
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            try:
                made = importlib.import_module(module.name)
            except ImportError:
                continue  # says where it has moved to
            for name, function in vars(made).items():
                if name.startswith("build") and inspect.unwrap(function).__module__ == module.name:
                    yield f"{folder}.{module.name.rpartition('.')[2]}.{name}", function


BUILDERS = dict(_builders())


def test_the_builders_are_found():
    assert {"hopper.gemm.build", "blackwell.gemm.build", "blackwell.attention.build"} <= set(BUILDERS)


@pytest.mark.parametrize("name", BUILDERS)
def test_an_argument_of_another_kind_is_refused_by_name(name):
    """Each by keyword, and the first by place; what is missing besides does not matter."""
    build = BUILDERS[name]
    parameters = list(inspect.signature(build).parameters)
    for parameter in parameters:
        for wrong in (object(), [1], {"a": 1}, 1.5):
            with pytest.raises(ArgumentTypeError, match=f"`{parameter}` of a kernel"):
                build(**{parameter: wrong})
    with pytest.raises(ArgumentTypeError, match=f"`{parameters[0]}` of a kernel"):
        build("pair")


@dataclass(frozen=True)
class Size:
    rows: int = 1
    step: float = 0.5
    pair: tuple[int, int] | None = None


@builder(keep=2)
def build(size: Size, ranks: int = 1, scales: str | None = None, whole: bool = True) -> tuple[object, ...]:
    return size, ranks, scales, whole


@pytest.mark.parametrize(
    "given, expected, got",
    [
        ({"ranks": True}, "a whole number", "True"),
        ({"ranks": 2.0}, "a whole number", "2.0"),
        ({"scales": 3}, "a word or None", "3"),
        ({"whole": 1}, "True or False", "1"),
        ({"size": Size}, f"a {__name__}.Size", repr(Size)),
    ],
)
def test_what_an_annotation_allows_is_said_in_words(given, expected, got):
    with refused("argument-type", got, expected):
        build(**{"size": Size(), **given})


@pytest.mark.parametrize(
    "field, expected, got",
    [
        ({"rows": "64"}, "a whole number", "'64'"),
        ({"rows": [64]}, "a whole number", "[64]"),
        ({"step": True}, "a number", "True"),
        ({"pair": 3}, "a builtins.tuple or None", "3"),
    ],
)
def test_a_field_of_a_configuration_is_refused_by_name(field, expected, got):
    with refused("configuration", got, expected):
        build(Size(**field))


def test_results_are_kept_and_whole_numbers_are_numbers():
    assert build(Size()) is build(Size())
    assert build(Size(step=1)) == build(Size(step=1.0))
