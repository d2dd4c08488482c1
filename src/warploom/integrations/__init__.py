"""Plugs for frameworks, each loaded when it is named: `warploom.torch`, `warploom.jax`."""
