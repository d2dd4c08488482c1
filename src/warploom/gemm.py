"""The former place of `warploom.operators`."""

raise ImportError(
    "warploom.gemm is warploom.operators now: Problem, choose, explain, matmul, linear, grouped_matmul and quantize "
    "are imported from there"
)
