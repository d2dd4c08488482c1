"""Constants that functions of scores and masks make from a value: `b.new_ones((), dtype=torch.bool)`, torch.zeros_like.

torch's own `and_masks`, `or_masks` and `noop_mask` start from such a constant. A value acts as a tensor without
dimensions; its device is ignored.
"""

from __future__ import annotations

import sys
from typing import Any

from .attention_values import ATTRIBUTES, FUNCTIONS, METHODS, Value, converted, trace_error


def _kind(x: Value) -> str:
    return "bool" if x.is_truth else "float32" if x.is_float else "int32"


def _like(x: Any, number: Any, *, dtype: Any = None, **_: Any) -> Value:
    """A constant of the value's type, or of `dtype`, like torch.full_like."""
    return converted(Value.of(number), _kind(Value.of(x)) if dtype is None else dtype)


def _new(x: Value, size: Any, number: Any, **named: Any) -> Value:
    """A constant, like torch.Tensor.new_full."""
    if isinstance(size, int) or len(size):
        raise trace_error("a value inside the kernel has no dimensions", "size ()", repr(size))
    return _like(x, number, **named)


FUNCTIONS |= {
    "full_like": _like,
    "ones_like": lambda x, **named: _like(x, 1, **named),
    "zeros_like": lambda x, **named: _like(x, 0, **named),
}
METHODS |= {
    "new_full": _new,
    "new_ones": lambda x, size=(), **named: _new(x, size, 1, **named),
    "new_zeros": lambda x, size=(), **named: _new(x, size, 0, **named),
}
ATTRIBUTES |= {
    "dtype": lambda x: getattr(sys.modules.get("torch"), _kind(x), None),
    "device": lambda _: None,
    "ndim": lambda _: 0,
    "shape": lambda _: (),
}
