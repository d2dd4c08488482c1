"""Kernels for sm_100 (B200), each a rung to read. Assembled and emulated, not run on hardware by the authors.

minimal        one CTA, one tile, one accumulator
specialised    roles, a ring of stages, two accumulators: the products of a tile run while the one before is stored
gemm           cluster launch control; pairs of CTAs, 256 x 128 and 256 x 256
block_scaled   mxfp8 and nvfp4
small_m        few rows of A, K divided by a cluster
grouped        rows in groups, each with a matrix of its own
attention      forward, five kinds of warps (FlashAttention-4)
"""
