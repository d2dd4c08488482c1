"""Attention in pairs of options: every kernel builds as the operator chooses it, and small calls are right.

`benchmarks.covering` chooses members of the space of options that hold every pair of them; `make test-slow` runs all,
`make test-all` a few, and `benchmarks/results/emulator/attention-space.json` has what ptxas said of those that are
assembled.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from benchmarks import attention_space
from benchmarks.attention_space import judged, members, verdict
from benchmarks.attention_space_calls import BLOCKS, FAMILIES, name_of
from benchmarks.covering import combined, cover
from tests.operators.attention_space_values import ERRORS, Outcome, emulate, small
from warploom.runtime.program import Program

AXES = {"type": ("bf16", "e4m3"), "width": (64, 72, 128), "packed": (False, True), "sinks": (False, True)}
EXCLUDED = [{"type": ["e4m3"], "width": [72]}, {"type": ["e4m3"], "packed": [True], "sinks": [True]}]


def named(chosen: Any) -> list[Any]:
    """A parameter of a test for each member of each kind of call: the kind, and its options."""
    cases = [(family, member) for family in FAMILIES for member in chosen(family)]
    return [pytest.param(family, member, id=f"{family}: {name_of(member)}") for family, member in cases]


def spilling() -> Program:
    """A kernel that keeps 32 numbers of 64 bits at a time, in 24 registers."""
    numbers = range(32)
    loads = "".join(f"ld.volatile.global.u64 %n{at}, [%a+{8 * at}];\n" for at in numbers)
    stores = "".join(f"st.volatile.global.u64 [%a+{8 * at}], %n{at};\n" for at in numbers)
    text = f""".version 8.0
.target sm_90a
.address_size 64
.visible .entry adds(.param .u64 a) .maxntid 128 .maxnreg 24
{{
.reg .u64 %a, %n<32>;
ld.param.u64 %a, [a];
{loads}{stores}ret;
}}
"""
    return Program(text, "adds", block=(128,))


def needs_torch(member: dict[str, Any]) -> None:
    if member.get("functions") in BLOCKS:
        pytest.importorskip("torch")


@pytest.mark.parametrize("strength", [2, 3])
def test_a_cover_has_every_combination_that_any_member_has(strength: int) -> None:
    space = [dict(zip(AXES, values, strict=True)) for values in product(*AXES.values())]
    allowed = [each for each in space if not any(all(each[k] in v for k, v in rule.items()) for rule in EXCLUDED)]
    found = cover(AXES, EXCLUDED, strength)
    assert combined(found, strength) == combined(allowed, strength)
    assert all(each in allowed for each in found)
    assert len(found) < len(allowed)


def test_a_cover_is_the_same_every_time() -> None:
    assert cover(AXES, EXCLUDED) == cover(AXES, EXCLUDED)


def test_a_value_that_is_off_is_told() -> None:
    wanted = {"out": np.ones(100), "lse": np.array([0.0, -np.inf])}
    member = {"numbers": "bf16", "softcap": False}
    assert Outcome(wanted, wanted).off(member) == {}
    more = np.ones(100) * (1 + 1.1 * ERRORS["bf16"])
    assert set(Outcome({"out": more, "lse": np.array([0.0, 0.0])}, wanted).off(member)) == {"out", "lse"}


@pytest.mark.usefixtures("needs_ptxas")
@pytest.mark.parametrize("allow", [False, True])
def test_a_kernel_that_spills_too_much_is_told(allow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_space, "SPILLED_BYTES", 0)
    program = replace(spilling(), allow_spills=allow)
    assert "registers in memory, of 0" in verdict(program)["wrong"]
    monkeypatch.setattr(attention_space, "SPILLED_BYTES", 1 << 20)
    assert ("wrong" in verdict(program)) is not allow


@pytest.mark.sample(0, all=3)
@pytest.mark.usefixtures("needs_ptxas")
@pytest.mark.parametrize("family, member", named(members))
def test_the_operators_choice_builds_and_keeps_its_registers(family: str, member: dict[str, Any]) -> None:
    needs_torch(member)
    assert {"wrong", "refused"}.isdisjoint(judged(family, member))


@pytest.mark.sample(0, all=3)
@pytest.mark.parametrize("family, member", named(small))
def test_a_small_call_is_right_and_clean(family: str, member: dict[str, Any]) -> None:
    needs_torch(member)
    assert emulate(family, member).off(member) == {}
