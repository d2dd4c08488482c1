"""The machine's state: clusters, CTAs, warps, registers, memories, barriers, and the frame that steps see."""
