"""The former place of `examples/hopper/f64_roles.py`."""

raise ImportError("warploom.kernels.hopper.f64_roles is examples/hopper/f64_roles.py now, outside the wheel")
