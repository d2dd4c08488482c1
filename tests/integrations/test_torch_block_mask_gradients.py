"""Gradients under block masks skip the tiles that are left out, and are those of float64 autograd."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import warploom  # noqa: E402
import warploom.torch as wt  # noqa: E402
from tests.integrations.test_torch_attention_functions import alibi, compared, exact, given  # noqa: E402
from warploom.operators.attention.blocks import visit_lists  # noqa: E402

pytestmark = pytest.mark.full
DOCUMENTS = torch.tensor([0, 0, 0, 1, 1, 2]).repeat_interleave(64)


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def documents(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j)


def window(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j) & (i - j < 100)


def some_blocks(b: Any, h: Any, i: Any, j: Any) -> Any:
    """Queries 128 to 255 see nothing, and nobody sees keys 128 to 255."""
    return (i // 128 != 1) & (j // 128 != 1)


def of_each_head(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i >= j + 64 * h) | (j - i >= 200 - 70 * b)


CASES = [
    ("causal", causal, alibi, (300, 300), 128, False),
    ("documents", documents, alibi, (384, 384), 128, False),
    ("documents in blocks of 64", documents, None, (384, 384), 64, False),
    ("a window", window, None, (300, 300), 128, False),
    ("a window in blocks of 256", window, alibi, (384, 384), 256, False),
    ("empty rows and columns", some_blocks, alibi, (384, 300), 128, False),
    ("another mask for each head and batch", of_each_head, None, (200, 300), 128, True),
    ("blocks of odd sizes", window, alibi, (200, 200), (48, 80), False),
]  # fmt: skip


@pytest.mark.sample(0, all=3)
@pytest.mark.parametrize(
    "mask_mod, score_mod, lengths, block, of_all", [x[1:] for x in CASES], ids=[x[0] for x in CASES]
)
def test_gradients_under_a_block_mask(mask_mod, score_mod, lengths, block, of_all):
    mask = create_block_mask(
        mask_mod, 2 if of_all else None, 2 if of_all else None, *lengths, device="cpu", BLOCK_SIZE=block
    )
    call = lambda q, k, v: wt.flex_attention(q, k, v, score_mod, mask, enable_gqa=True)  # noqa: E731
    compared(call, lambda q, k, v: exact(q, k, v, score_mod, mask_mod), given(*lengths))


def test_a_learned_bias_under_a_block_mask() -> None:
    mask = create_block_mask(window, None, None, 200, 200, device="cpu", BLOCK_SIZE=128)
    bias, their = (torch.linspace(-1, 1, 399).to(kind).requires_grad_() for kind in (torch.float32, torch.float64))
    call = lambda q, k, v: wt.flex_attention(  # noqa: E731
        q, k, v, lambda s, b, h, i, j: s + bias[i - j + 199], mask, enable_gqa=True
    )
    wanted = lambda q, k, v: exact(q, k, v, lambda s, b, h, i, j: s + their[i - j + 199], window)  # noqa: E731
    compared(call, wanted, given(200, 200))
    assert (bias.grad - their.grad).norm() <= 0.015 * their.grad.norm()


@pytest.mark.parametrize("block, lengths", [(128, (300, 390)), ((64, 256), (300, 390)), ((48, 80), (200, 170))])
@pytest.mark.parametrize("mask_mod", [causal, window, some_blocks, of_each_head])
def test_lists_name_the_tiles_that_are_seen_and_the_turn_of_each(mask_mod, block, lengths) -> None:
    mask = create_block_mask(mask_mod, 2, 2, *lengths, device="cpu", BLOCK_SIZE=block)
    lists = {name: each.host for name, each in visit_lists(mask, 64, 128, *lengths).items()}
    at = torch.meshgrid(*(torch.arange(n) for n in (2, 2, *lengths)), indexing="ij")
    sees = mask_mod(*at).numpy()
    for batch, head in np.ndindex(2, 2):
        visitors = np.zeros(lists["visitors"].shape[2], np.int32)
        for number in range(-(-lengths[1] // 128)):
            words, ranks = lists["visits"][batch, head, number, : lists["visited"][batch, head, number]].T
            keys = sees[batch, head, :, 128 * number :][:, :128]
            assert (np.diff(words >> 1) < 0).all(), "the last tile is the first"
            assert (ranks == visitors[words >> 1]).all()
            visitors[words >> 1] += 1
            for tile in range(len(visitors)):
                here, listed = keys[64 * tile :][:64], words[words >> 1 == tile]
                assert len(listed) or not here.any()
                assert not len(listed) or listed[0] & 1 or (here.all() and here.shape == (64, 128))
        assert (visitors == lists["visitors"][batch, head]).all()


def test_arrays_of_numpy_have_block_masks_too() -> None:
    mask = create_block_mask(causal, None, None, 64, 64, device="cpu", BLOCK_SIZE=64)
    q, k, v = (each.detach() for each in given(64, 64))
    arrays = [each.view(torch.int16).numpy().view(ml_dtypes.bfloat16) for each in (q, k, v)]
    out, lse = warploom.attention(*arrays, block_mask=mask, return_lse=True)
    found = warploom.attention_backward(*arrays, out, lse, arrays[0], block_mask=mask)
    same = warploom.attention_backward(*arrays, out, lse, arrays[0], causal=True)
    for one, other in zip(found, same, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), atol=0.02)
