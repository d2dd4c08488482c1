"""Tensors with tangents are refused in repeated calls, too, which skip the checks."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("needs_ptxas")
CALLS = {
    "a product": "warploom.matmul(a, b)",
    "attention": "warploom.attention(q, q, q)",
    "decoding": "warploom.attention_decode(q[:, :, :1], q, q, lengths)",
}


@pytest.mark.parametrize("name", CALLS)
def test_a_repeated_call_with_a_tangent_is_refused(name: str, on_gpu):
    on_gpu(f"""
import torch.autograd.forward_ad as forward_ad
from warploom.errors import ArgumentError
a, b, out, q = bf16(256, 128), bf16(128, 256), bf16(256, 256), bf16(1, 2, 128, 64)
lengths = torch.tensor([128], dtype=torch.int32)
call = lambda a, q: {CALLS[name]}
for _ in range(12):
    call(a, q)
with forward_ad.dual_level():
    call(a, q)
    with pytest.raises(ArgumentError):
        call(forward_ad.make_dual(a, a), forward_ad.make_dual(q, q))
call(a, q)
""")
