"""Clocks and edges: who knows what."""
