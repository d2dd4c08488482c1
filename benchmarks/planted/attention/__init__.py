"""Bugs planted by hand in the source text of the attention kernels, as `benchmarks.planted_attention` judges them."""
