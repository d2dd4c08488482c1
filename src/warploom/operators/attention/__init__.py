"""Attention: forward, of packed sequences, with a cache, and its gradients."""
