"""From accumulators to memory: what is done to them, and the ways there."""
