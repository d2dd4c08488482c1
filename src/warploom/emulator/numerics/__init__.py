"""Arithmetic as the hardware does it: rounding, tensor cores, reductions."""
