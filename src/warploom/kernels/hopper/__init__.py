"""The finished Hopper kernels, each built from a description of its product, its fusion and its tiles."""
