"""Sizes at 32-bit limits, without allocating them: refused with a message, or computed correctly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import warploom
from tests.errors import refused
from warploom.kernels.hopper.attention_backward_config import backward_config
from warploom.kernels.hopper.attention_config import L2_BYTES, Attention
from warploom.operators.attention import captured, gradients, limits, named_launch
from warploom.operators.attention.backward import BackwardChoice, arrays_of, backward_choice
from warploom.operators.attention.request import read, read_varlen
from warploom.operators.binding import Binding
from warploom.runtime.bind import Arguments, bind
from warploom.runtime.machine import Machine
from warploom.runtime.program import Program

OPTIONS: dict[str, Any] = {"scale": None, "softcap": None}
FEW = np.zeros(1024, np.float16)


def long(*shape: int) -> np.ndarray:
    """An array of any length whose rows are all the same one."""
    return np.lib.stride_tricks.as_strided(FEW, shape, (*(16 for _ in shape[:-1]), 2))


@pytest.mark.parametrize("name", ["q", "k"])
@pytest.mark.parametrize("length", [limits.LONGEST + 1, 1 << 31, (1 << 32) + 5])
def test_lengths_that_kernels_cannot_count_are_refused(name: str, length: int) -> None:
    given = {each: long(1, 1, length if each[0] == name or (name, each) == ("k", "v") else 8, 8) for each in "qkv"}
    with refused("wrong-shape"):
        warploom.attention(**given)
    rows = {each: array[0].transpose(1, 0, 2) for each, array in given.items()}
    with refused("wrong-shape"):
        warploom.attention_varlen(**rows, cu_seqlens_q=np.zeros(2, np.int32), cu_seqlens_k=np.zeros(2, np.int32))


@pytest.mark.parametrize(
    "lengths", [(1, limits.LONGEST), (limits.LONGEST, 1), (limits.LONGEST, limits.LONGEST), (5, 9)]
)
@pytest.mark.parametrize("window", [(None, None), ((1 << 30) - 1, (1 << 30) - 1), (3, (1 << 30) - 1), (0, 0)])
@pytest.mark.parametrize("causal", [False, True, "top-left"])
def test_rows_and_edges_add_up_within_s32(lengths: tuple[int, int], window: Any, causal: bool | str) -> None:
    queries, keys = lengths
    tensors = {"q": long(1, 1, queries, 8), "k": long(1, 1, keys, 8), "v": long(1, 1, keys, 8)}
    edges = {"causal": causal, "window": window}
    numbers = read(tensors, layout="bhsd", **edges, **OPTIONS).numbers
    rows, size = 192, 256
    for edge in (int(numbers[name]) for name in ("first", "last") if name in numbers):
        for row in (0, queries - 1):
            assert -(1 << 31) <= row + edge - rows - size and row + edge + rows + size < 1 << 31
    left, right = window
    offset = 0 if causal == "top-left" else keys - queries
    wanted = [None if left is None else offset - left, None if right is None else offset + right]
    if causal:
        wanted[1] = offset
    for row in (0, queries // 2, queries - 1):  # the same keys are seen
        seen = [None if edge is None else min(max(row + edge, -1), keys) for edge in wanted]
        found = [numbers.get(name) for name in ("first", "last")]
        assert seen == [None if edge is None else min(max(row + int(edge), -1), keys) for edge in found]


def test_heads_computed_together_are_no_more_than_there_are() -> None:
    """Blocks of a section are numbered in u32; few keys of many queries fit the cache for more heads than exist."""
    tensors = {"q": long(2, 8, 1 << 20, 64), "k": long(2, 8, 1, 64), "v": long(2, 8, 1, 64)}
    assert L2_BYTES // (64 * 4) * -(-(1 << 20) // 128) > 1 << 29
    assert read(tensors, layout="bhsd", causal=True, window=None, **OPTIONS).numbers["section"] <= 16
    rows = {name: array[0].transpose(1, 0, 2) for name, array in tensors.items()}
    rows |= {name: np.array([0, 1], np.int32) for name in ("cu_seqlens_q", "cu_seqlens_k")}
    assert read_varlen(rows, longest=1, causal=False, window=None, **OPTIONS).numbers["section"] <= 8


def test_an_array_that_a_function_could_not_index_is_refused() -> None:
    table = np.zeros((1 << 16, 1 << 15), np.uint8)  # nobody touches its memory
    with refused("wrong-shape"):
        captured.captured(lambda s, b, h, i, j: s + table[i, j], "score_mod")


@pytest.mark.parametrize("width", [1 << 15, 1 << 18])
def test_a_table_of_more_keys_than_s32_counts_is_refused(width: int) -> None:
    """With 2^18 pages their number times their keys is 2^32, which a kernel would take for no room."""
    pages = np.zeros((1, 1, 1 << 14, 8), np.float16)
    table = np.zeros((1, width), np.int32)
    with refused("wrong-shape"):
        warploom.attention_decode(pages[:, :, 0], pages, pages, np.array([5], np.int32), table=table)


def test_what_is_wrong_with_a_captured_array_is_said() -> None:
    table = np.zeros((8, 8), np.float32)[::-1]
    with refused("wrong-layout"):
        captured.captured(lambda s, b, h, i, j: s + table[i, j], "score_mod")


def test_lists_of_more_tiles_than_u32_counts_are_refused() -> None:
    torch = pytest.importorskip("torch")
    from warploom.operators.attention.blocks import tile_lists

    blocks = torch.zeros((), dtype=torch.int32).expand(64, 64, 8, 8)

    class Mask:
        kv_num_blocks, kv_indices, full_kv_num_blocks, full_kv_indices = blocks[..., 0], blocks, None, None
        BLOCK_SIZE = (1 << 15, 1 << 15)
        mask_mod = staticmethod(lambda b, h, i, j: i >= j)

    with refused("wrong-shape"):
        tile_lists(Mask, 128, 64, 1 << 18, 1 << 18)


@pytest.mark.sample(0, all=1)
@pytest.mark.parametrize("window", [((1 << 30) - 1, 7), (7, (1 << 30) - 1)])
def test_a_window_wider_than_all_keys_is_no_limit(window: tuple[int, int]) -> None:
    draw = np.random.default_rng(0)
    q, k, v = (draw.standard_normal((1, 1, length, 64)).astype(np.float16) for length in (70, 50, 50))
    wanted = warploom.attention(q, k, v, window=tuple(-1 if each > 100 else each for each in window))
    np.testing.assert_array_equal(warploom.attention(q, k, v, window=window), wanted)


@pytest.mark.sample(1, all=1)
@pytest.mark.parametrize("batch, heads, width", [(65_536, 1, 8), (65_536, 2, 8), (1, 65_537, 8), (1, 65_537, 64)])
def test_gradients_of_more_heads_and_batches_than_a_grid_has_along_y_and_z(
    batch: int, heads: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without emulating them: the launches are bound as on a GPU, whose grid limits `bind` asks for."""
    grids = []

    def bound(program: Program, arrays: Binding, machine: Any = None) -> None:
        found = bind(program, Arguments(list(arrays.arrays), arrays.numbers), Machine("H200", "sm_90a", 132))
        grids.append(found.grid)

    monkeypatch.setattr(named_launch, "launch", bound)
    monkeypatch.setattr(gradients, "refuse_long_emulation", lambda request: None)
    q, lse = np.zeros((batch, heads, 2, width), np.float16), np.zeros((batch, heads, 2), np.float32)  # it reads them
    warploom.attention_backward(q, q, q, q, lse, q)
    assert grids == [(batch * heads * blocks, 1, 1) for blocks in (16, 1, 1)]


def test_a_workspace_that_the_kernel_of_gradients_cannot_number_is_refused() -> None:
    wide, most = Attention(), 1 << 30
    assert backward_choice(wide) == BackwardChoice(backward_config(wide))
    assert not backward_choice(wide, deterministic=False).config.deterministic
    for lines, keys in (((1, 1, 1 << 25), 8), ((most, 1, 80), 8), ((1, 1 << 16, 80), 1 << 24)):
        with refused("wrong-shape"):
            arrays_of(wide, backward_choice(wide), lines, keys)


@pytest.mark.full
@pytest.mark.parametrize("varlen", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_gradients_are_the_same_wherever_a_grid_has_its_heads(varlen: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(0)

    def normal(length: int, heads: int) -> np.ndarray:
        shape = (length, heads, 8) if varlen else (2, heads, length, 8)
        return draw.standard_normal(shape).astype(np.float16)

    q, k, v, grad = (normal(length, heads) for length, heads in ((70, 3), (20, 1), (20, 1), (70, 3)))
    ends = (np.array([0, 60, 70], np.int32), np.array([0, 7, 20], np.int32)) if varlen else ()
    forward = warploom.attention_varlen if varlen else warploom.attention
    backward = warploom.attention_varlen_backward if varlen else warploom.attention_backward
    out, lse = forward(q, k, v, *ends, causal=True, return_lse=True)
    wanted = backward(q, k, v, *ends, out, lse, grad, causal=True)
    monkeypatch.setattr(gradients, "GRID_LIMITS", ((1 << 31) - 1, 2, 2))
    for found, right in zip(backward(q, k, v, *ends, out, lse, grad, causal=True), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


def test_more_rows_of_gradients_than_a_grid_has_are_refused() -> None:
    request = read({name: long(1 << 20, 128, 128, 8) for name in "qkv"}, layout="bhsd", causal=False, window=None,
                   **OPTIONS)  # fmt: skip
    with refused("wrong-shape", expected=f"at most {(1 << 31) - 1}", got=str(1 << 31)):
        gradients.folds(request, 0, 128)
