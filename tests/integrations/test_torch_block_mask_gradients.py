"""Gradients under block masks skip the tiles that are left out, and are those of float64 autograd."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention.flex_attention import create_block_mask  # noqa: E402

import warploom.torch as wt  # noqa: E402
from tests.integrations.test_torch_attention_functions import alibi, compared, exact, given  # noqa: E402

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


@pytest.mark.sample(2, all=3)
@pytest.mark.parametrize(
    "mask_mod, score_mod, lengths, block, of_all", [x[1:] for x in CASES], ids=[x[0] for x in CASES]
)
def test_gradients_under_a_block_mask(mask_mod, score_mod, lengths, block, of_all):
    mask = create_block_mask(
        mask_mod, 2 if of_all else None, 2 if of_all else None, *lengths, device="cpu", BLOCK_SIZE=block
    )
    call = lambda q, k, v: wt.flex_attention(q, k, v, score_mod, mask, enable_gqa=True)  # noqa: E731
    compared(call, lambda q, k, v: exact(q, k, v, score_mod, mask_mod), given(*lengths))
