"""Framework plug-ins, each loaded when it is named: `warploom.torch`, `warploom.jax`."""
