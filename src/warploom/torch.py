"""`import warploom.torch`: the PyTorch plug, under the name people type. See `warploom.integrations.torch`."""

from .integrations import torch_distributed as distributed
from .integrations.torch import linear, matmul
from .integrations.torch_attention import flex_attention, scaled_dot_product_attention
from .integrations.torch_compile import backend, register
from .integrations.torch_layers import ConversionWarning, Linear, convert, converted, fused

__all__ = ["ConversionWarning", "Linear", "backend", "convert", "converted", "distributed", "flex_attention", "fused",
           "linear", "matmul", "scaled_dot_product_attention"]  # fmt: skip

register()
