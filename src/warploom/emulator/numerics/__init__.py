"""Arithmetic as in hardware: rounding, tensor cores, reductions."""
