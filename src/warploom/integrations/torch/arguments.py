"""PyTorch: checks of the arguments on which torch itself relies, before any of them is used.

`warploom.operators` checks whatever it computes. Autograd, autocast and torch.compile use the arguments before that;
what they rely on is checked here, and converted to the form that they can carry: numbers among the scales become
part of alpha, `residual` becomes c with beta = 1, a configuration becomes text.

If torch.compile traces a wrong argument, the graph breaks before the call, which then reports the error like an eager
one; with fullgraph=True torch's error contains the sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, NoReturn

import torch
from torch import Tensor

from ...errors import ArgumentError, ArgumentTypeError
from ...isa import dtypes
from ...operators.families import to_text
from ...operators.request import check_linear, check_residual
from ...operators.spec.arguments import ARRAYS, BY_NAME, OF_RESULT_SHAPE, check_names
from ...runtime.arrays import view

SIXTEEN = (torch.bfloat16, torch.float16)
SCALES = ("scale_a", "scale_b")
OUTPUTS = {
    name: getattr(torch, dtypes.torch_name(each))
    for each in (dtypes.bf16, dtypes.f16, dtypes.f32, dtypes.e4m3, dtypes.e5m2, dtypes.s32)
    for name in (each.name, dtypes.torch_name(each))
}
"""Types of results by name, because torch.compile cannot trace `dtypes.of`."""


# -- tensors -------------------------------------------------------------------------------------------------------


def traced(tensor: Tensor) -> bool:
    """True if a tensor's class computes differently: fake, functional, distributed. It may have no memory."""
    kind = type(tensor)
    if kind in (torch.Tensor, torch.nn.Parameter):
        return False
    return kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def plain(value: Any) -> Any:
    """A tensor of a subclass without its own behaviour, as the torch.Tensor it is; anything else unchanged."""
    if not isinstance(value, Tensor) or type(value) in (torch.Tensor, torch.nn.Parameter) or traced(value):
        return value
    return value.as_subclass(torch.Tensor)


def check(what: str, a: Any, b: Any, out: Any, options: Mapping[str, Any]) -> None:
    """Raise ArgumentTypeError for anything but a torch tensor, ArgumentError for `x` and `weight` that do not match.

    what: "matmul" or "linear"; options: those that are given.
    """
    for name in options:
        if name not in BY_NAME:
            end_graph(f"{what} has no argument `{name}`")
    check_names(what, options)
    first, second = ("x", "weight") if what == "linear" else ("a", "b")
    arrays = [(first, a), (second, b), *[(name, options[name]) for name in ARRAYS if name in options]]
    if out is not None:
        arrays.append(("out", out))
    for name, value in arrays:
        if not isinstance(value, Tensor) and not (
            name in BY_NAME and BY_NAME[name].may_be_number and isinstance(value, Real)
        ):
            _no_tensor(value, name)
    if what == "linear" and (b.ndim != 2 or a.ndim == 0 or a.shape[-1] != b.shape[1]):
        end_graph("`weight` is not a matrix" if b.ndim != 2 else "the inner sizes of `x` and `weight` differ")
        check_linear(tuple(a.shape), tuple(b.shape))


def _no_tensor(value: Any, name: str) -> NoReturn:
    end_graph(f"argument `{name}` is not a torch tensor")
    other = view(value, name)
    raise ArgumentTypeError(
        f"argument `{name}` is not a torch tensor, which a gradient, autocast or torch.compile requires",
        expected="a torch.Tensor",
        got=other.describe(),
        hint="torch.from_numpy or torch.from_dlpack gives a tensor that shares its memory",
    )


def check_sizes(a: Tensor, b: Tensor) -> None:
    """Raise ArgumentError for operands that cannot be multiplied."""
    for name, tensor in (("a", a), ("b", b)):
        if tensor.ndim < 2:
            end_graph(f"`{name}` is not a matrix")
            raise ArgumentError(
                f"`{name}` is not a matrix", expected="(M, K) and (K, N)", got=f"shape {tuple(tensor.shape)}"
            )
    if a.shape[-1] != b.shape[-2]:
        end_graph("the inner sizes of `a` and `b` differ")
        raise ArgumentError(
            "the inner sizes of `a` and `b` differ", expected=f"b of shape (…, {a.shape[-1]}, N)", got=tuple(b.shape)
        )


def end_graph(why: str) -> None:
    """While torch.compile traces, let the call be made outside the graph; fullgraph=True raises `why`."""
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(msg=f"warploom: {why}")


def rows(
    x: Tensor, weight: Tensor, out: Tensor | None, options: dict[str, Any]
) -> tuple[Tensor, Tensor, Tensor | None, dict[str, Any], bool]:
    """The operands of `linear` in the form of `matmul`, and True if x is a vector, like what goes with it."""
    if x.ndim != 1:
        return x, weight.mT, out, options, False
    options = {
        name: value[None] if name in OF_RESULT_SHAPE and value.ndim == 1 else value for name, value in options.items()
    }  # fmt: skip
    return x[None], weight.mT, None if out is None else out[None], options, True


# -- what a graph or a gradient carries ------------------------------------------------------------------------------


def settled(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with numbers checked, those among the scales merged into alpha, and residual as c.

    Raises ArgumentError and ArgumentTypeError.
    """
    given = {name: value for name, value in options.items() if value is not None}
    for name in ("alpha", "beta"):
        if name in given:
            given[name] = number(given[name], name)
    scales = [name for name in SCALES if name in given]
    numbers = [name for name in scales if not isinstance(given[name], Tensor)]
    if numbers and len(numbers) < len(scales):
        (have,) = [name for name in scales if name not in numbers]
        end_graph(f"`{have}` is an array and `{numbers[0]}` is not")
        raise ArgumentError(
            f"`{have}` is an array and `{numbers[0]}` is not",
            expected="two arrays, or two numbers",
            got=f"{numbers[0]}={given[numbers[0]]!r}",
        )
    for name in numbers:
        given["alpha"] = given.get("alpha", 1.0) * number(given.pop(name), name)
    if "residual" in given:
        addend, beta = given.get("c"), given.get("beta", 0.0)
        if addend is not None or beta not in (0.0, 1.0):
            end_graph("`residual` stands alone, without c= or beta=")
        check_residual(addend, beta)
        given["c"], given["beta"] = given.pop("residual"), 1.0
    return given


def number(value: Any, name: str) -> float:
    """A Python number as a float. Raises ArgumentTypeError for anything else, ArgumentError if it is too large."""
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            end_graph(f"{name}= is too large")
            raise ArgumentError(f"{name}= is too large", expected="a number in the range of a float") from None
    end_graph(f"{name}= is not a number")
    raise ArgumentTypeError(f"{name}= is not a number", expected="an int or a float", got=type(value).__name__)


def result_dtype(wanted: Any) -> torch.dtype:
    """out_dtype= as a torch dtype. Raises ArgumentTypeError for anything that is not a type."""
    if isinstance(wanted, torch.dtype):
        return wanted
    name = wanted.name if isinstance(wanted, dtypes.DType) else wanted
    if isinstance(name, str) and name in OUTPUTS:
        return OUTPUTS[name]
    end_graph("out_dtype= is not spelled as torch spells it")
    found: torch.dtype | None = getattr(torch, dtypes.torch_name(dtypes.of(wanted)), None)
    if found is None:
        raise ArgumentTypeError("torch does not have this out_dtype", expected=", ".join(OUTPUTS), got=str(wanted))
    return found


def spelled(config: Any) -> str:
    """A configuration, or its name, as a text that a graph can carry. Raises ArgumentTypeError for anything else."""
    if isinstance(config, str):
        return config
    try:
        return to_text(config)
    except ArgumentTypeError:
        end_graph("config= is not a configuration of a kernel")
        raise
