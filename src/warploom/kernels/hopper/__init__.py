"""The finished Hopper kernels, each built from a description: what is multiplied, what is fused, which tiles."""
