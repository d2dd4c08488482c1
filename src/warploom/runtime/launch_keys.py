"""What the values of a parameter's keys in a launch description may be, before anything is made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .launch_values import BY_RANK, misdescribed


def _integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _integers(value: object) -> bool:
    return isinstance(value, list) and all(map(_integer, value))


def _text(value: object) -> bool:
    return isinstance(value, str)


def _hexadecimal(value: object) -> bool:
    try:
        return isinstance(value, str) and bytes.fromhex(value) is not None
    except ValueError:
        return False


_COUNT = "an integer: {} = 64"
_VALUES: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "dtype": (_text, '{} = "f32"'),
    "file": (_text, '{} = "a.npy"'),
    "same_as": (_text, '{} = "A"'),
    "hex": (_hexadecimal, 'pairs of hexadecimal digits: {} = "00ff"'),
    "size": (_integer, _COUNT),
    "offset": (_integer, _COUNT),
    "seed": (_integer, _COUNT),
    "device": (_integer, "the rank of a GPU: {} = 1"),
    "strides": (_integers, "elements from one index to the next: {} = [64, 1]"),
    "box": (_integers, "elements, innermost first: {} = [64, 128]"),
    "element_strides": (_integers, "elements, innermost first: {} = [1, 1]"),
    "of": (lambda value: isinstance(value, list) and all(map(_text, value)), 'arrays: {} = ["x_of_0", "x_of_1"]'),
    "value": (lambda value: isinstance(value, int | float) and not isinstance(value, bool), "a number: {} = 1"),
}


def check_values(described: Mapping[str, Any], what: str, path: Path) -> None:
    """Raise ArgumentError for a value that is not of its key's kind."""
    for key, (takes, example) in _VALUES.items():
        if key not in described:
            continue
        value = described[key]
        each = value if key in BY_RANK and isinstance(value, list) else [value]
        if not all(map(takes, each)):
            raise misdescribed(
                f"`{key}` of {what} is of the wrong kind", where=str(path), expected=example.format(key),
                got=repr(value),
            )  # fmt: skip
