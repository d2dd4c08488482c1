"""`import warploom.jax`: the JAX plug-in, under its public name. See `warploom.integrations.jax`."""

from .integrations.jax import linear, matmul
from .integrations.jax.attention import attention

__all__ = ["attention", "linear", "matmul"]
