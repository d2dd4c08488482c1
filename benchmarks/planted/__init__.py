"""Bugs planted by rule into the PTX of other compilers, and whether `warploom check` reports them as errors."""
