"""The former place of `examples/hopper/f64.py`."""

raise ImportError("warploom.kernels.hopper.f64 is examples/hopper/f64.py now, outside the wheel")
