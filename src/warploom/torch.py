"""`import warploom.torch`: the PyTorch plug-in, under its public name. See `warploom.integrations.torch`."""

from .integrations.torch import distributed, linear, matmul
from .integrations.torch.attention import flex_attention, scaled_dot_product_attention
from .integrations.torch.compile import backend, register
from .integrations.torch.flash_attention import (
    flash_attn_func,
    flash_attn_kvpacked_func,
    flash_attn_qkvpacked_func,
    flash_attn_varlen_func,
    flash_attn_varlen_kvpacked_func,
    flash_attn_varlen_qkvpacked_func,
    flash_attn_with_kvcache,
)
from .integrations.torch.layers import ConversionWarning, Linear, convert, converted, fused, unfused

__all__ = ["ConversionWarning", "Linear", "backend", "convert", "converted", "distributed", "flash_attn_func",
           "flash_attn_kvpacked_func", "flash_attn_qkvpacked_func", "flash_attn_varlen_func",
           "flash_attn_varlen_kvpacked_func", "flash_attn_varlen_qkvpacked_func", "flash_attn_with_kvcache",
           "flex_attention", "fused", "linear", "matmul", "scaled_dot_product_attention", "unfused"]  # fmt: skip

register()
