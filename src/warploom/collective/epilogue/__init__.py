"""From accumulators to memory: operations on them, and the stores."""
