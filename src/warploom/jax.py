"""`import warploom.jax`: the JAX plug, under the name people type. See `warploom.integrations.jax`."""

from .integrations.jax import linear, matmul

__all__ = ["linear", "matmul"]
