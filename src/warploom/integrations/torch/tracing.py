"""What torch.compile may trace, said without importing `torch._dynamo`, which takes longer to import than torch itself.

`torch.compiler.disable` and `assume_constant_result` import it to set the attributes that are set here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Function = TypeVar("Function", bound=Callable[..., Any])

TRIED = (2, 7)
"""The oldest torch with which `untraced` was tried; 2.7.1, 2.11 and 2.13 were."""


def constant_result(function: Function) -> Function:
    """Let torch.compile call a function while it traces, and keep the result as a constant of the graph."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def outside_graphs(function: Function) -> Function:
    """End a graph before each call of a function, and trace neither it nor what it calls."""
    if not _tried():
        return torch.compiler.disable(function)  # type: ignore[no-any-return]
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    untraced(function)
    return function


def untraced(function: Any) -> None:
    """Keep torch.compile from tracing a function before which a graph has ended, and everything that it calls.

    This is not a public part of torch. If it is missing, torch.compile continues to trace and may report the error in
    another way.
    """
    if not _tried():
        return
    try:
        frames = torch._C._dynamo.eval_frame
        skip = frames._FrameAction.SKIP
        frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(skip, skip))
    except (AttributeError, TypeError, RuntimeError):
        pass


def _tried() -> bool:
    return tuple(int(part) for part in torch.__version__.split(".")[:2]) >= TRIED
