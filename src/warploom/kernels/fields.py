"""The fields of a configuration: whether they are what they say (a whole number, a yes or no, a word), and as text."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import Any, ClassVar, ParamSpec, Self, TypeAlias, TypeVar, get_type_hints

from ..annotated import allows, in_words, shown
from ..collective.epilogue.spec import Fusion, Product
from ..errors import ArgumentError, ArgumentTypeError
from ..renamed import refuse

_P = ParamSpec("_P")
_R = TypeVar("_R")
_PLAIN = Fusion()
MOST = 1 << 16
"""The largest value of any number."""
SPELT_OUT = 4
"""As many possible values are listed in a message; more are described."""
Numbers: TypeAlias = int | Sequence[int]
"""The possible values of a number: all from the least one, or those listed."""


def check_fields(
    config: Any, numbers: Mapping[str, Numbers], words: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> None:
    """Raise ArgumentError for the first field of a dataclass with an invalid value; a field's default shows its kind.

    numbers: the possible values of each number, if not all from 1; words: those of each word.
    """
    for field in dataclasses.fields(config):
        name, value, default = field.name, getattr(config, field.name), field.default
        if isinstance(default, bool):
            valid, expected = type(value) is bool, "True or False"
        elif isinstance(default, int):
            possible = _listed(numbers.get(name, 1))
            if type(value) is int and value in possible:
                continue  # describing tens of thousands of numbers takes milliseconds
            valid, expected = False, _numbers_in_words(possible)
        elif isinstance(default, str):
            valid, expected = isinstance(value, str) and value in words[name], ", ".join(words[name])
        else:
            continue
        if not valid:
            raise ArgumentError(f"this {type(config).__name__} cannot be built: `{name}` is invalid",
                                expected=expected, got=repr(value), code="configuration")  # fmt: skip


def _listed(numbers: Numbers) -> Sequence[int]:
    return range(numbers, MOST + 1) if isinstance(numbers, int) else numbers


def _numbers_in_words(possible: Sequence[int]) -> str:
    """ "128 or 256", "a whole number from 2 to 16", "a multiple of 16 from 16 to 256"."""
    first, step = possible[0], possible[1] - possible[0] if len(possible) > 1 else 0
    if (
        len(possible) > SPELT_OUT
        and first % step == 0
        and tuple(possible) == tuple(range(first, possible[-1] + 1, step))
    ):
        return f"a {'whole number' if step == 1 else f'multiple of {step}'} from {first} to {possible[-1]}"
    *others, last = map(str, possible)
    return f"{', '.join(others)} or {last}" if others else last


def check_kinds(**given: tuple[object, Any]) -> None:
    """Raise ArgumentTypeError for the first argument that is not of its kind. given: (what, a class or a union)."""
    for name, (value, kind) in given.items():
        if not allows(kind, value):
            raise ArgumentTypeError(f"`{name}` of a kernel has the wrong type", expected=in_words(kind),
                                    got=shown(value))  # fmt: skip
        if dataclasses.is_dataclass(value):
            _check_parts(value)


def _check_parts(of: Any) -> None:
    """Raise ArgumentError for the first field of a dataclass whose type is wrong."""
    kind: Any = type(of)
    for name, allowed in _kinds_of(kind).items():
        value = getattr(of, name)
        if not allows(allowed, value):
            raise ArgumentError(f"this {kind.__name__} cannot be built: `{name}` has the wrong type",
                                expected=in_words(allowed), got=shown(value), code="configuration")  # fmt: skip


@lru_cache(maxsize=128)
def _kinds_of(kind: type[Any]) -> dict[str, Any]:
    """The types of a dataclass's fields."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def builder(keep: int = 0) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Decorator of `build` functions: refuse arguments that the annotations do not allow; cache the last results."""

    def decorate(build: Callable[_P, _R]) -> Callable[_P, _R]:
        remembered = lru_cache(maxsize=keep)(build)
        names = tuple(inspect.signature(build).parameters)

        @lru_cache(maxsize=1)
        def kinds() -> dict[str, Any]:
            return get_type_hints(build)

        @wraps(build)
        def call(*of: _P.args, **how: _P.kwargs) -> _R:
            allowed = kinds()
            given = {**dict(zip(names, of, strict=False)), **how}
            check_kinds(**{name: (value, allowed[name]) for name, value in given.items() if name in allowed})
            return remembered(*of, **how)  # type: ignore[arg-type]

        return call

    return decorate


# -- as text -------------------------------------------------------------------------------------------------------


class Configuration:
    """Base of all kernel configurations: a family, and a name made of fields.

    `former` maps the field names of earlier versions, whose evidence files and tables are still read. Python code that
    passes one gets an error with the new name.
    """

    family: ClassVar[str]
    former: ClassVar[Mapping[str, str]] = {}

    def __new__(cls, *args: Any, **fields: Any) -> Self:
        refuse(cls.__name__, fields, cls.former)
        return super().__new__(cls)

    def name(self) -> str:
        """The name in tables and for `config=`, without fields at their defaults: "small_m:tokens=16,stages=5"."""
        return f"{self.family}:{to_words(self)}"


Requirement = tuple[object, str, str, object]
"""Of a kernel: whether it is met, what it is about, what is expected, and what is there."""


class ProductConfiguration(Configuration):
    """Base of the configurations of kernels for products.

    Attributes:
        numbers: the possible values of each number, if not all from 1.
        words: the possible values of each word.
    """

    numbers: ClassVar[Mapping[str, Numbers]] = {}
    words: ClassVar[Mapping[str, Sequence[str]]] = {}

    @property
    def ctas_per_tile(self) -> int:
        """CTAs that compute a tile of D together: one for each split of K."""
        return getattr(self, "split_k", 1)

    def requirements(self, product: Product, fusion: Fusion) -> list[Requirement]:
        """What a kernel requires, in the order in which it is reported."""
        raise NotImplementedError

    def violated(self, product: Product, fusion: Fusion = _PLAIN) -> Requirement | None:
        """The first requirement that is not met; None if a kernel can be built."""
        for name, numbers in self.numbers.items():
            if (got := getattr(self, name)) not in (possible := _listed(numbers)):
                return False, f"`{name}`", _numbers_in_words(possible), got
        return next((each for each in self.requirements(product, fusion) if not each[0]), None)

    def check(self, product: Product, fusion: Fusion = _PLAIN) -> None:
        """Raise ArgumentError if no kernel can be built from this configuration."""
        check_fields(self, self.numbers, self.words)
        if (found := self.violated(product, fusion)) is not None:
            _, what, expected, got = found
            raise ArgumentError(f"the configuration {self.name()} cannot be built: {what}", expected=expected, got=got,
                                code="configuration")  # fmt: skip


_FLAGS = {"0": False, "1": True, "false": False, "true": True}


def to_words(config: Any) -> str:
    """The fields that differ from their defaults: "tile_m=64,stages=8,pdl=false"."""
    found = {field.name: (getattr(config, field.name), field.default) for field in dataclasses.fields(config)}
    return ",".join(f"{name}={str(value).lower()}" for name, (value, default) in found.items() if value != default)


def from_words(kind: type, text: str) -> dict[str, Any]:
    """The fields of a configuration that such a text names. Raises ArgumentError for another text."""
    known = {field.name: field.default for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = word.partition("=")
        name = getattr(kind, "former", {}).get(name, name)
        if not equals or name not in known:
            raise ArgumentError(
                f"`{word[:80]}` is not a field of a {kind.__name__}", expected="FIELD=VALUE of " + ", ".join(known),
                got=text[:200],
            )  # fmt: skip
        default = known[name]
        try:
            read = str if isinstance(default, str) else _FLAGS.__getitem__ if isinstance(default, bool) else int
            values[name] = read(value.lower() if isinstance(default, bool) else value)
        except (ValueError, KeyError):
            raise ArgumentError(f"`{name}` of a configuration is of another type",
                                expected=type(default).__name__, got=value) from None  # fmt: skip
    return values
