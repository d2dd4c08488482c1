"""`import warploom.torch`: the PyTorch plug, under the name people type. See `warploom.integrations.torch`."""

from .integrations.torch import ConversionWarning, Linear, convert, converted, linear, matmul

__all__ = ["ConversionWarning", "Linear", "convert", "converted", "linear", "matmul"]
