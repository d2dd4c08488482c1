"""Random arrays, and comparison of results up to rounding, for the tests of the JAX integration."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np


def normal(seed, *shape, dtype=None):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape), dtype or jnp.bfloat16)


def close(ours, theirs, units=2):
    """Within some bf16 units of the largest value: both sides round, in another order."""
    ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=units * 2.0**-8 * max(1.0, np.abs(theirs).max()))
