"""Attention: forward, packed sequences, decoding with a KV cache, and gradients."""
