"""Microbenchmarks of a GPU's latencies, rates and energies, from which `timing` takes its constants."""
