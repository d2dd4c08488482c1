"""Bugs planted by hand in the source text of the attention kernels, judged by `benchmarks.planted_attention`."""
