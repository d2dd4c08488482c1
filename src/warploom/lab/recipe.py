"""How to build a kernel, as data, so that an evidence file's row can be rebuilt and its text compared.

    {"builder": "warploom.kernels.hopper.gemm:build",
     "arguments": [{"class": "warploom.kernels.hopper.description:Product", "a": {"dtype": "bf16"}, …}, …]}

Only fields that differ from the class's defaults are kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from ..errors import ArgumentError
from ..isa import dtypes
from ..isa.dtypes import DType

_PACKAGE = __name__.partition(".")[0]
_MOVED = {
    "warploom.collective.fusion": "warploom.collective.epilogue.spec",
    "warploom.kernels.hopper.decode": "warploom.kernels.hopper.small_m",
    "warploom.kernels.hopper.decode_config": "warploom.kernels.hopper.small_m_config",
}
"""Former module names in older recipes, and the current ones."""

_RENAMED = {"DecodeConfig": "SmallMConfig"}
"""Former class names in older recipes, and the current ones."""


def recipe(builder: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """The recipe of `builder(*arguments)`. Raises ArgumentError for values that cannot be represented."""
    function = getattr(builder, "__wrapped__", builder)
    return {
        "builder": f"{function.__module__}:{function.__qualname__}",
        "arguments": [encode(argument) for argument in arguments],
    }


def encode(value: Any) -> Any:
    """A value for JSON: frozen dataclasses and element types by name."""
    if isinstance(value, DType):
        return {"dtype": value.name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        found = {"class": f"{kind.__module__}:{kind.__qualname__}"}
        for field in dataclasses.fields(value):
            if field.init and (item := getattr(value, field.name)) != field.default:
                found[field.name] = encode(item)
        return found
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise ArgumentError("this cannot be part of a kernel's recipe", got=repr(value))


def decode(value: Any) -> Any:
    """The inverse of `encode`; lists come back as tuples."""
    if isinstance(value, Mapping):
        if "class" not in value:
            return getattr(dtypes, value["dtype"])
        kind = _named(value["class"])
        former = getattr(kind, "former", {})
        fields = {str(name): decode(item) for name, item in value.items() if name != "class"}
        return kind(**{former.get(name, name): item for name, item in fields.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(decode(item) for item in value)
    return value


def rebuild(data: Mapping[str, Any]) -> Any:
    """The kernel of a recipe. Raises ArgumentError if the package cannot build it any more, saying why."""
    try:
        return _named(data["builder"])(*(decode(argument) for argument in data["arguments"]))
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        raise ArgumentError(f"the recipe no longer fits the package: {type(error).__name__}: {error}") from None


def _named(name: str) -> Any:
    """The object named by "module:name", within this package only."""
    module, _, attribute = name.partition(":")
    if module.partition(".")[0] != _PACKAGE:
        raise ArgumentError("a recipe names something outside the package", expected=f"{_PACKAGE}.…", got=name)
    found = import_module(_MOVED.get(module, module))
    return getattr(found, attribute if hasattr(found, attribute) else _RENAMED.get(attribute, attribute))
