"""The machine at rest: clusters, CTAs, warps, registers, memories, barriers, and the frame that steps see."""
