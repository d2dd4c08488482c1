"""The former place of `small_m_config`."""

raise ImportError("warploom.kernels.hopper.decode_config is small_m_config now, and DecodeConfig is SmallMConfig")
