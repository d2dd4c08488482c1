"""Kernels for sm_100 (B200), in order of complexity. Assembled and emulated, not run on hardware by the authors.

minimal        one CTA, one tile, one accumulator
specialised    roles, a ring of stages, two accumulators: the MMAs of a tile run while the previous tile is stored
gemm           cluster launch control; CTA pairs, 256 x 128 and 256 x 256
block_scaled   mxfp8 and nvfp4
small_m        few rows of A, K split over a cluster
grouped        rows in groups, each with its own matrix
attention      forward, five kinds of warps (FlashAttention-4)
"""
