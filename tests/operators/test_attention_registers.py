"""Kernels with functions of scores and masks, and of packed sequences, build for a GPU: nothing spills."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from warploom.driver import compile as compiler
from warploom.errors import SpillWarning
from warploom.isa.dtypes import e4m3
from warploom.kernels.hopper import attention_backward
from warploom.kernels.hopper.attention_backward_config import backward_config
from warploom.kernels.hopper.attention_config import Attention
from warploom.operators.attention import machine, spills
from warploom.operators.attention.captured import captured
from warploom.operators.attention.request import read
from warploom.runtime.program import Program

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
    return stored(machine.program_of(request.of, machine.default(request.of), None))


def stored(program: Program) -> int:
    """Bytes that a thread of a program stores to local memory."""
    assert program.allow_spills, "no function or sequence is refused for the registers that it needs"
    built = compiler.build(program.text, arch="sm_90a", entry=program.entry, allow_spills=True)
    return built.resources[program.entry].spill_stores


@pytest.mark.sample(2, all=2)
@pytest.mark.parametrize("head_dim, most", [(128, 0), (64, 0), (96, 16), (192, 0), (256, 0)])
def test_a_causal_mask_of_documents_and_a_slope_spill_a_few_registers_at_most(head_dim: int, most: int) -> None:
    assert spilled(head_dim, mask_mod=same_document, score_mod=slope) <= most


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("head_dim, above, below", [
    (64, False, False), (128, True, True), (64, True, True), (128, False, False),
])  # fmt: skip
def test_packed_sequences_spill_nothing(head_dim: int, above: bool, below: bool) -> None:
    of = Attention(head_dim=head_dim, value_dim=head_dim, varlen=True, window_right=above, window_left=below)
    assert stored(machine.program_of(of, machine.default(of), None)) == 0


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("head_dim, options", [
    (128, {"mask_mod": same_document}), (256, {"mask_mod": same_document}),
    (128, {"varlen": True, "window_left": True}),
    (96, {"mask_mod": same_document, "score_mod": slope}),
])  # fmt: skip
def test_8_bit_kernels_spill_little(head_dim: int, options: dict[str, Any]) -> None:
    kept = {name: captured(value, name).function if callable(value) else value for name, value in options.items()}
    of = Attention(dtype=e4m3, head_dim=head_dim, value_dim=head_dim, window_right=True, sinks=True, **kept)
    assert stored(machine.program_of(of, machine.default(of), None)) <= spills.SPILLED_BYTES


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("head_dim, value_dim", [(128, 128), (192, 128)])
def test_gradients_under_functions_spill_little(head_dim: int, value_dim: int) -> None:
    functions = {
        "score_mod": captured(slope, "score_mod").function,
        "mask_mod": captured(same_document, "mask_mod").function,
    }
    of = Attention(head_dim=head_dim, value_dim=value_dim, window_right=True, window_left=True, **functions)
    assert stored(attention_backward.build(of, backward_config(of)).program()) <= spills.SPILLED_BYTES


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_gradients_under_a_block_mask_spill_nothing(head_dim: int) -> None:
    functions = {
        "score_mod": captured(slope, "score_mod").function,
        "mask_mod": captured(same_document, "mask_mod").function,
    }
    of = Attention(head_dim=head_dim, value_dim=head_dim, block_mask=True, **functions)
    assert stored(attention_backward.build(of, backward_config(of)).program()) == 0


BIAS, DISTANCES = np.zeros((1, 2, 256, 256), np.float32), np.zeros((2, 512), np.float32)
CAPTURED = {
    "slopes": slope, "distances": lambda s, b, h, i, j: s + DISTANCES[h, i - j + 256],
    "all": lambda s, b, h, i, j: s + BIAS[b, h, i, j],
}  # fmt: skip


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("name", CAPTURED)
def test_a_function_of_scores_that_reads_arrays_spills_nothing(name: str) -> None:
    assert spilled(128, score_mod=CAPTURED[name], mask_mod=same_document) == 0


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("name", CAPTURED)
def test_gradients_of_captured_arrays_spill_nothing(name: str, head_dim: int) -> None:
    wanted = replace(captured(CAPTURED[name], "score_mod").function, wanted=(0,))
    of = Attention(head_dim=head_dim, value_dim=head_dim, window_right=True, score_mod=wanted)
    assert stored(attention_backward.build(of, backward_config(of)).program()) == 0


def test_a_function_that_needs_many_registers_is_said_once() -> None:
    class Program:
        text = "a kernel of this test"

    with pytest.warns(SpillWarning):
        spills.warn_spills(spills.SPILLED_BYTES + 4, Program)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spills.warn_spills(spills.SPILLED_BYTES + 4, Program)  # type: ignore[arg-type]
        Program.text = "another"
        spills.warn_spills(spills.SPILLED_BYTES, Program)  # type: ignore[arg-type]
