"""Rings of stages in shared memory, and who waits for what."""
