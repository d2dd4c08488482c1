"""`import warploom.torch`: the PyTorch plug, under the name people type. See `warploom.integrations.torch`."""

from .integrations.torch import linear, matmul
from .integrations.torch_layers import ConversionWarning, Linear, convert, converted

__all__ = ["ConversionWarning", "Linear", "convert", "converted", "linear", "matmul"]
