"""PyTorch: functions of scores and masks as torch.compile has traced them, by names that an operator can carry.

    the caller's function  ->  a graph of torch's functions on numbers  ->  `GraphFunction`  ->  its name, a text

torch.compile guards the numbers that the function captured, and makes inputs of its tensors. A name says all that the
graph computes, so that a graph that was compiled before, or is found in a cache, has the function that it was traced
with: the same function has the same name in every process, which learns it when it traces.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch
from torch import fx

from ...errors import ArgumentError
from ...operators.attention.captured import PARAMETERS, Contents, Rebuild
from ...operators.attention.captured_names import WHOLE, description, of_library

IN_PLACE = frozenset("iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split())
"""The functions of `operator` for +=, -= and so on."""


class Untraceable(Exception):
    """A traced function that cannot become part of a kernel; its text says why."""


@dataclass(frozen=True)
class _Result:
    """The value of an earlier step, or a placeholder, by its number."""

    number: int


@dataclass(frozen=True)
class GraphFunction:
    """A function of scores or masks, as a list of steps.

    Attributes:
        kind: "score_mod" or "mask_mod".
        steps: (what is called, or the name of a method; positional and named arguments); each is the next value.
        numbers: what follows the parameters: a captured number, or None for a captured tensor.
        result: the value that it returns.
        name: says all of this.
    """

    kind: str
    steps: tuple[tuple[Any, tuple[Any, ...], dict[str, Any]], ...] = field(repr=False)
    numbers: tuple[Any, ...]
    result: Any
    name: str

    def contents(self, arrays: Sequence[Any]) -> Contents:
        """The function with the tensors that it captures, as the eager call reads it."""
        named = {f"{self.kind.partition('_')[0]}_{number}": array for number, array in enumerate(arrays)}
        return Contents(self._called, self.kind, (self.kind, "graph", self.name), named, self._made)

    def _called(self, *values: Any) -> Any:
        raise AssertionError("only what `_made` makes is called")

    def _made(self, making: Rebuild) -> Callable[..., Any]:
        arrays = iter(making.stand_ins)
        captured = [next(arrays) if number is None else number for number in self.numbers]

        def function(*scalars: Any) -> Any:
            found = [*scalars, *captured]
            for called, given, named in self.steps:
                values, by_name = _filled(given, found), _filled(named, found)
                if isinstance(called, str):
                    found.append(getattr(values[0], called)(*values[1:], **by_name))
                else:
                    found.append(called(*values, **by_name))
            return _filled(self.result, found)

        return function


def _filled(value: Any, found: Sequence[Any]) -> Any:
    """Arguments with the values of earlier steps."""
    if isinstance(value, _Result):
        return found[value.number]
    if isinstance(value, (tuple, list)):
        return type(value)(_filled(each, found) for each in value)
    if isinstance(value, dict):
        return {name: _filled(each, found) for name, each in value.items()}
    if isinstance(value, slice):
        return slice(*(_filled(each, found) for each in (value.start, value.stop, value.step)))
    return value


@lru_cache(maxsize=1)
def known() -> dict[str, GraphFunction]:
    """The process's functions, by name. A compiled graph may call any of them at any time."""
    return {}


def function_named(name: str) -> GraphFunction:
    """Raises ArgumentError for one that this process has not traced."""
    found = known().get(name)
    if found is None:
        raise ArgumentError(
            "a graph calls attention with a function that this process has not traced",
            expected="graphs of torch.compile in the process that traced them", got=name,
            hint="an exported program has no functions of scores and masks",
        )  # fmt: skip
    return found


def learn(
    graph: fx.GraphModule, kind: str, captured: Sequence[Any], device: torch.device
) -> tuple[str, list[torch.Tensor]]:  # fmt: skip
    """The name of a traced function, and the tensors that it captures. Raises Untraceable.

    captured: what the graph takes after the parameters: tensors, and numbers, which become part of the function. A
    float that has changed is a tensor by now, f64 and on the CPU, whose `item()` the graph uses; on the `device` it is
    f32, as every number is in a kernel.
    """
    given = len(PARAMETERS[kind])
    numbers = tuple([None if isinstance(each, torch.Tensor) else _number(each) for each in captured])
    floats = {given + at for at, each in enumerate(captured) if _may_be_float(each)}
    steps, result, used = _read(graph, given + len(captured), floats)
    tensors = [
        each.to(device, torch.float32) if given + at in used else each
        for at, each in enumerate(captured)
        if isinstance(each, torch.Tensor)
    ]
    text = repr((kind, _spelled(steps), _spelled(numbers), _spelled(result)))
    name = hashlib.sha256(text.encode()).hexdigest()
    known().setdefault(name, GraphFunction(kind, steps, numbers, result, name))
    return name, tensors


def _number(value: Any) -> bool | int | float:
    """A number, also one that is a symbol while a graph is traced: it is guarded from now on."""
    if isinstance(value, (bool, torch.SymBool)):
        return bool(value)
    if isinstance(value, (int, torch.SymInt)):
        return int(value)
    if isinstance(value, (float, torch.SymFloat)):
        return float(value)
    raise Untraceable(f"a function of scores or masks captures a {type(value).__name__}")


def _may_be_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.ndim == 0 and value.dtype is torch.float64


def _read(graph: fx.GraphModule, inputs: int, floats: set[int]) -> tuple[tuple[Any, ...], Any, set[int]]:
    """The steps of a graph, its result, and the placeholders among `floats` that are used as numbers."""
    numbers: dict[fx.Node, _Result] = {}
    steps: list[Any] = []
    used: set[int] = set()

    def of(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return numbers[value]
        if isinstance(value, (tuple, list)):
            return (tuple if isinstance(value, tuple) else list)(of(each) for each in value)
        if isinstance(value, dict):
            return {name: of(each) for name, each in value.items()}
        return slice(of(value.start), of(value.stop), of(value.step)) if isinstance(value, slice) else value

    needed = _needed(graph.graph)
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            numbers[node] = _Result(len(numbers))
        elif node.op == "output":
            (result,) = node.args
            if isinstance(result, (tuple, list)):
                (result,) = result
            if sum(each.op == "placeholder" for each in graph.graph.nodes) != inputs:
                raise Untraceable("the graph of a function of scores or masks has other inputs")
            return tuple(steps), of(result), used
        elif _changes(node):
            raise Untraceable(f"a function of scores or masks changes a tensor, or what torch records: {node.target}")
        elif node in needed:
            if node.target == "item" and of(node.args[0]).number in floats:
                numbers[node] = of(node.args[0])
                used.add(numbers[node].number)
                continue
            if node.op not in ("call_function", "call_method"):
                raise Untraceable(f"a function of scores or masks has {node.op} {node.target} in its graph")
            if node.target == "item" or "sym_" in getattr(node.target, "__name__", ""):
                raise Untraceable("a function of scores or masks computes with numbers that have changed")
            steps.append((node.target, of(node.args), of(node.kwargs)))
            numbers[node] = _Result(inputs + len(steps) - 1)
    raise Untraceable("the graph of a function of scores or masks has no result")


def _changes(node: fx.Node) -> bool:
    """True for a step that counts although nothing uses its value: steps of a kernel only compute values."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name in ("setitem", "_set_grad_enabled") or "out" in node.kwargs:
        return True
    if getattr(operator, name, None) is not node.target:
        return name[-1:] == "_" and name[-2:] != "__"  # `add_`, but not operator's `and_`
    changed = node.args[0] if name in IN_PLACE else None  # `t += x` counts for who reads t under another name
    return isinstance(changed, fx.Node) and any(each > node for each in changed.users)


def _needed(graph: fx.Graph) -> set[fx.Node]:
    """The nodes on which the result depends."""
    found: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output" or node in found:
            found.update(node.all_input_nodes)
    return found


def _spelled(value: Any) -> Any:
    """Everything that a step depends on, in the same form in every process."""
    if isinstance(value, _Result):
        return f"%{value.number}"
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(_spelled, value)]
    if isinstance(value, dict):
        return {name: _spelled(each) for name, each in sorted(value.items())}
    if isinstance(value, slice):
        return ["slice", *map(_spelled, (value.start, value.stop, value.step))]
    if isinstance(value, WHOLE) or of_library(value):
        return description(value)
    raise Untraceable(f"a function of scores or masks uses {value!r} in its graph")
