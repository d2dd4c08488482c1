"""Expected contents of arrays in a launch description: a file, an expression, or another kernel's result.

An expression sees the arrays as they were before the run, by name, floats as f64, and `np`. It is read as a tree of
operators, subscripts and calls of NumPy's own functions, so an untrusted description can compute but do nothing else.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..isa import dtypes
from ..runtime import emulate, launch_file
from ..runtime.launch_file import LaunchFile
from ..runtime.launch_values import Given, array_of_file, misdescribed
from ..runtime.program import read_text
from .wrong_result import Comparison, Unexpected

_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Subscript, ast.Slice, ast.Tuple, ast.List,
    ast.Constant, ast.Name, ast.Attribute, ast.keyword, ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_FUNCTIONS = frozenset(
    "abs all any append arange argmax argmin argsort array asarray bincount bool_ broadcast_to clip "
    "concatenate cumprod cumsum diag dot einsum empty expand_dims eye flip float16 float32 float64 full "
    "hstack inf int16 int32 int64 int8 matmul max mean min moveaxis nan newaxis ones outer pad pi prod repeat "
    "reshape roll round sort split sqrt squeeze stack std sum swapaxes take tanh tile trace transpose tri "
    "tril triu uint16 uint32 uint64 uint8 unique var vstack where zeros".split()
)
_METHODS = frozenset(
    "T astype argmax argmin argsort clip cumsum copy flatten max mean min prod ravel repeat reshape round shape size "
    "squeeze std sum swapaxes take trace transpose var view".split()
)
_UNITS = {"e4m3": 2.0**-3, "e5m2": 2.0**-2, "bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-18, "f64": 2.0**-45}
"""Allowed error of a result relative to its size: one rounding to its type; for f32 and f64 that of a sum."""

_MOST_BITS = 1 << 12


def expectation(
    description: LaunchFile, arrays: Mapping[str, Given], options: Mapping[str, Any]
) -> Callable[..., None] | None:
    """A check to call after the run, made before it; None if the description expects nothing.

    It raises `Unexpected` for the first array that is not as expected. Raises ArgumentError for a description that
    names an unknown array, or an expression that cannot be computed.
    """
    if not description.expect:
        return None
    before = {name: deepcopy(array) for name, array in arrays.items()}
    wanted = [(one, _wanted(description, one, before, options)) for one in description.expect]

    def check(*_: Any) -> None:
        for one, values in wanted:
            _compare(description, one, _whole(arrays[one["name"]]), values)

    return check


def _wanted(
    description: LaunchFile, one: Mapping[str, Any], before: Mapping[str, Given], options: Mapping[str, Any]
) -> np.ndarray:
    name = one["name"]
    if name not in before:
        raise misdescribed(
            f"[[expect]] names an array `{name}` that the launch does not have", where=str(description.path),
            expected=", ".join(before) or "an array", got=name, hint=launch_file.call_it(name),
        )  # fmt: skip
    if "kernel" in one:
        return _plain(_by_kernel(description, one, before, options))
    if "file" in one:
        try:
            loaded = array_of_file(description.path.parent / one["file"])
        except ArgumentError as error:
            error.where = error.where or str(description.path)
            raise
        return _plain(loaded.view(_whole(before[name]).dtype) if loaded.dtype.kind == "V" else loaded)
    return _computed(description, str(one["value"]), before)


def _by_kernel(
    description: LaunchFile, one: Mapping[str, Any], before: Mapping[str, Given], options: Mapping[str, Any]
) -> np.ndarray:
    """The array of that name after another text ran with copies of the arrays that both have."""
    path = description.path.parent / one["kernel"]
    other = launch_file.read(launch_file.beside(path))
    program = other.program(read_text(path), path.name)
    made = other.made(program, {name: deepcopy(array) for name, array in before.items()})
    if one["name"] not in made.arrays:
        raise misdescribed(
            f"the reference kernel has no array `{one['name']}`", where=str(other.path),
            expected=f'as = "{one["name"]}"', got=", ".join(made.arrays) or "no array",
        )  # fmt: skip
    steps = {key: options[key] for key in ("max_steps",) if key in options}
    emulate(program, *made.arguments, check=False, **made.launch, **steps)
    return _whole(made.arrays[one["name"]])


def _computed(description: LaunchFile, text: str, before: Mapping[str, Given]) -> np.ndarray:
    try:
        tree = ast.parse(text, mode="eval")
        for node in ast.walk(tree):
            _allowed(node, before)
        values = {name: _plain(_whole(array)) for name, array in before.items()}
        tree = ast.fix_missing_locations(_Bounded().visit(tree))
        with np.errstate(all="ignore"):
            return _plain(
                eval(compile(tree, "[[expect]]", "eval"), {"np": np, "Pow": _power, "LShift": _shifted}, values)
            )
    except ArgumentError:
        raise
    except Exception as error:
        raise misdescribed(
            f"the expected value cannot be computed: {error}", where=str(description.path), got=text,
            hint=launch_file.call_it("x") if isinstance(error, _UnknownName) else None,
        ) from None  # fmt: skip


class _Bounded(ast.NodeTransformer):
    """Python's own integers grow without limit: `10**10**10` would take all memory, and forever."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow | ast.LShift):
            return ast.Call(ast.Name(type(node.op).__name__, ast.Load()), [node.left, node.right], [])
        return node


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > _MOST_BITS:
        raise ValueError("the power is too large")
    return base**exponent


def _shifted(number: Any, bits: Any) -> Any:
    if isinstance(number, int) and isinstance(bits, int) and number.bit_length() + bits > _MOST_BITS:
        raise ValueError("the shifted number is too large")
    return number << bits


class _UnknownName(ValueError):
    pass


def _allowed(node: ast.AST, before: Mapping[str, Given]) -> None:
    if not isinstance(node, _NODES):
        raise ValueError(f"{type(node).__name__} is not allowed in it")
    if isinstance(node, ast.Name) and node.id != "np" and node.id not in before:
        raise _UnknownName(f"there is no array `{node.id}`, only {', '.join(before)} and np")
    if isinstance(node, ast.Attribute):
        of_numpy = isinstance(node.value, ast.Name) and node.value.id == "np"
        known = node.attr in _FUNCTIONS or isinstance(getattr(np, node.attr, None), np.ufunc)
        if not (known if of_numpy else node.attr in _METHODS):
            raise ValueError(f"`{node.attr}` is not a function of NumPy that it may use")


def _whole(array: Given) -> np.ndarray:
    """An array; if each GPU has its own, all of them, by rank. Raises ValueError if their shapes differ."""
    return array if isinstance(array, np.ndarray) else np.stack(array)


def _plain(values: Any) -> np.ndarray:
    """Floats as f64, integers as s64, so that sums of narrow ones fit; u64 stays, since it has bits that s64 lacks."""
    array = np.asarray(values)
    if array.dtype.kind in "cOSUmM":
        raise ValueError(f"{array.dtype} is neither integer nor float")
    if array.dtype.kind in "ib" or array.dtype.kind == "u" and array.itemsize < 8:
        return array.astype(np.int64)
    return array if array.dtype.kind == "u" else array.astype(np.float64)


def _compare(description: LaunchFile, one: Mapping[str, Any], array: np.ndarray, wanted: np.ndarray) -> None:
    name, got = one["name"], _plain(array)
    try:
        expected = np.broadcast_to(wanted if wanted.size != got.size else wanted.reshape(got.shape), got.shape)
    except ValueError:
        raise misdescribed(
            f"the expected value of `{name}` has another shape", where=str(description.path), expected=array.shape,
            got=wanted.shape,
        ) from None  # fmt: skip
    unit = _UNITS.get(dtypes.of(array.dtype).name, 0.0)
    finite = np.abs(expected.astype(np.float64))
    largest = float(np.max(finite, where=np.isfinite(finite), initial=0.0))
    rtol, atol = one.get("rtol", unit), one.get("atol", unit * largest)
    if not rtol and not atol and got.dtype.kind in "iub" and expected.dtype.kind in "iub":
        wrong = got != expected
    else:
        wrong = ~np.isclose(got.astype(np.float64), expected.astype(np.float64), rtol, atol, equal_nan=True)
    if wrong.any():
        floats = [values.astype(np.float64) for values in (got, expected)]
        raise Unexpected(name, description.path.name, Comparison(floats[0], floats[1], wrong))
