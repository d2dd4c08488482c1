"""The former place of `examples/hopper/sparse_operand.py`."""

raise ImportError("warploom.kernels.hopper.sparse_operand is examples/hopper/sparse_operand.py now, outside the wheel")
