"""Kernels with functions of scores and masks, and of packed sequences, build for a GPU: nothing spills."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from warploom.driver import compile as compiler
from warploom.errors import SpillWarning
from warploom.kernels.hopper.attention_config import Attention
from warploom.operators.attention import calls, machine
from warploom.operators.attention.request import read

pytestmark = pytest.mark.usefixtures("needs_ptxas")

DOCUMENTS = np.repeat(np.arange(4), 64).astype(np.int32)
SLOPES = np.array([0.5, 0.25], np.float32)
OPTIONS = {"scale": None, "causal": False, "window": None, "softcap": None, "fast_accumulation": False}


def same_document(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return (DOCUMENTS[query] == DOCUMENTS[key]) & (query >= key)


def slope(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
    return score + SLOPES[head] * (key - query)


def spilled(head_dim: int, **functions: Any) -> int:
    """Bytes that a thread stores to local memory with the library's own tiles."""
    q = np.zeros((1, 2, 256, head_dim), ml_dtypes.bfloat16)
    given = {"score_mod": None, "mask_mod": None, "block_mask": None, **functions}
    request = read({"q": q, "k": q, "v": q}, layout="bhsd", **OPTIONS, **given)
    program = machine.program_of(request.of, machine.default(request.of), None)
    assert program.allow_spills, "no function is refused for the registers that it needs"
    built = compiler.build(program.text, arch="sm_90a", entry=program.entry, allow_spills=True)
    return built.resources[program.entry].spill_stores


@pytest.mark.sample(2, all=5)
@pytest.mark.parametrize("head_dim, most", [(128, 0), (64, 0), (96, 16), (192, 0), (256, 0)])
def test_a_causal_mask_of_documents_and_a_slope_spill_a_few_registers_at_most(head_dim: int, most: int) -> None:
    assert spilled(head_dim, mask_mod=same_document, score_mod=slope) <= most


@pytest.mark.sample(1, all=4)
@pytest.mark.parametrize("head_dim, above, below", [
    (64, False, False), (128, True, True), (64, True, True), (128, False, False),
])  # fmt: skip
def test_packed_sequences_spill_nothing(head_dim: int, above: bool, below: bool) -> None:
    of = Attention(head_dim=head_dim, value_dim=head_dim, varlen=True, above=above, below=below)
    program = machine.program_of(of, machine.default(of), None)
    built = compiler.build(program.text, arch="sm_90a", entry=program.entry, allow_spills=True)
    assert built.resources[program.entry].spill_stores == 0


def test_a_function_that_needs_many_registers_is_said_once() -> None:
    class Program:
        text = "a kernel of this test"

    with pytest.warns(SpillWarning):
        calls._warn_spills(calls.SPILLED_BYTES + 4, Program)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        calls._warn_spills(calls.SPILLED_BYTES + 4, Program)  # type: ignore[arg-type]
        Program.text = "another"
        calls._warn_spills(calls.SPILLED_BYTES, Program)  # type: ignore[arg-type]
