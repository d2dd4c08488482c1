"""Whole kernels for Hopper that the book reads and `benchmarks.beside` times; no call of the library reaches them.

Run what imports them in the root of the checkout.
"""
