"""Rules that watch one kind of resource each."""
