"""Kernels for Blackwell written from scratch with `warploom.lang`; each `bug(...)` in their text is a planted bug."""
