"""Programs in this package's language for the latencies, rates and energies of a GPU: constants of `timing`."""
