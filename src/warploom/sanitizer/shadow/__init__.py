"""Shadow memory: the latest accesses to each byte."""
