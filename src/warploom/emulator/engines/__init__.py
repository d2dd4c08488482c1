"""Asynchronous operations: bulk copies, tensor copies, and the order in which they take effect."""
