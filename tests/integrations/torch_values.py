"""Random tensors, and comparison of results up to rounding, for the tests of the PyTorch integration."""

from __future__ import annotations

import torch


def normal(*shape, dtype=torch.bfloat16, grad=False, seed=0):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape))).to(dtype)
    return made.requires_grad_() if grad else made


def close(ours, theirs, units=2):
    """Within some units of bf16 at the largest value: both sides round, in another order."""
    assert ours.shape == theirs.shape
    largest = max(1.0, theirs.abs().max().item())
    torch.testing.assert_close(ours.float(), theirs.float(), rtol=0, atol=units * 2.0**-8 * largest)
