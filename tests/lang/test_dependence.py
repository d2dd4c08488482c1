"""What registers are computed from, by the statements of a trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from warploom.isa.dtypes import f32, s32
from warploom.lang import Tile, kernel, ptx, reg
from warploom.lang.dependence import Dependence
from warploom.lang.trace import Trace

X, Y = 1, 2


def loaded(array: Any, at: Any) -> Any:
    return ptx.load(s32, ptx.addr(array.pointer() + at.view(s32) * 4))


def written_twice(x: Any, y: Any, array: Any) -> Any:
    found = x + 1
    found.set(y * 2)
    return found


def guarded(x: Any, y: Any, array: Any) -> Any:
    found = reg.scalar(s32, init=3)
    ptx.inst("mov.b32", found, 4, pred=x > 2)
    return found


def jumped(x: Any, y: Any, array: Any) -> Any:
    found = reg.scalar(s32, init=3)
    with ptx.if_(x > 2):
        found.set(4)
    return found


CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "a constant": (lambda x, y, array: reg.scalar(s32, init=3), 0),
    "one": (lambda x, y, array: (x + 1) * 3, X),
    "both": (lambda x, y, array: x + y * 2, X | Y),
    "a choice": (lambda x, y, array: ptx.select(y > 0, x, 1), X | Y),
    "a conversion": (lambda x, y, array: (x.to(f32) * 0.5).to(s32), X),
    "an address": (lambda x, y, array: loaded(array, y), Y),
    "what was written last": (written_twice, Y),
    "a guard": (guarded, X),
    "a jump, which may be of anything": (jumped, X | Y),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_register_depends_on_what_it_is_computed_from(name: str) -> None:
    compute, wanted = CASES[name]
    found = []

    @kernel(in_specs=(Tile(32, s32),), out_specs=(Tile(32, s32),), grid=1, block=32, arch="sm_90a")
    def traced(array: Any, out: Any) -> None:
        x, y = (ptx.special.tid.x().view(s32) + number for number in (1, 2))
        statements = Trace.current().statements
        begin = len(statements)
        value = compute(x, y, array)
        dependence = Dependence(statements[begin:], {x: X, y: Y})
        found.extend([dependence.of(value), dependence.of(7)])
        ptx.store(ptx.addr(out.pointer()), value)

    traced.program()
    assert found == [wanted, 0]
