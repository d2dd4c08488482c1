"""The former place of `examples/hopper/sparse.py`."""

raise ImportError("warploom.kernels.hopper.sparse is examples/hopper/sparse.py now, outside the wheel")
