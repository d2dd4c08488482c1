"""The former place of `examples/hopper/stream_k.py`."""

raise ImportError("warploom.kernels.hopper.stream_k is examples/hopper/stream_k.py now, outside the wheel")
