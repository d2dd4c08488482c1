"""Reports: of a run that fails, and of one that completes."""
