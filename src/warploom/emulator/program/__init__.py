"""Prepares a kernel's text to run: flattening, decoding, layout."""
