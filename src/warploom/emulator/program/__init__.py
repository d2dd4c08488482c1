"""A kernel's text made ready to run: flattened, decoded, laid out."""
