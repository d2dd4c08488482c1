"""Matrix units: accumulators, operand tiles, and the instructions that multiply them."""
