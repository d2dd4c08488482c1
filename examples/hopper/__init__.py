"""Complete Hopper kernels that the book explains and `benchmarks.beside` times; the library does not call them.

Run programs that import them from the root of the checkout.
"""
