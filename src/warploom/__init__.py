"""GPU kernels at PTX level, written in Python: emulated on a CPU, run as the same text on a GPU.

    from warploom import kernel, reg, smem, ptx, Tile, tiles
    from warploom.types import bf16, f32

Names are looked up when first used (PEP 562): `import warploom` loads no layer, no framework and no driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .emulator.diagnosis.report import Report as Report
    from .lang import Param as Param
    from .lang import PtxKernel as PtxKernel
    from .lang import Scalar as Scalar
    from .lang import Tile as Tile
    from .lang import ptx as ptx
    from .lang import reg as reg
    from .lang import smem as smem
    from .lang import tiles as tiles
    from .lang import tmem as tmem
    from .lang.kernel import Kernel as Kernel
    from .lang.kernel import kernel as kernel
    from .lang.ptx_kernel import ptx_kernel as ptx_kernel
    from .operators import grouped_matmul as grouped_matmul
    from .operators import linear as linear
    from .operators import matmul as matmul
    from .operators import quantize as quantize
    from .operators import rms_norm as rms_norm
    from .operators import rotary_embedding as rotary_embedding
    from .operators.attention.calls import attention as attention
    from .operators.attention.decode import attention_decode as attention_decode
    from .operators.attention.gradient_calls import attention_backward as attention_backward
    from .operators.attention.gradient_calls import attention_varlen_backward as attention_varlen_backward
    from .operators.attention.sequences import attention_varlen as attention_varlen
    from .runtime import H200 as H200
    from .runtime import Program as Program
    from .runtime import Struct as Struct
    from .runtime import TensorMap as TensorMap
    from .runtime import emulate as emulate
    from .runtime import launch as launch
    from .runtime import predict as predict
    from .runtime import trace as trace
    from .settings import config as config
    from .version import __version__ as __version__

_HOME_OF = {
    **dict.fromkeys(("kernel", "reg", "smem", "tmem", "ptx", "Tile", "Scalar", "tiles", "Kernel"), "lang"),
    **dict.fromkeys(("ptx_kernel", "PtxKernel", "Param"), "lang"),
    **dict.fromkeys(("emulate", "launch", "predict", "trace", "TensorMap", "Struct", "Program", "H200"), "runtime"),
    **dict.fromkeys(("matmul", "linear", "grouped_matmul", "quantize", "rms_norm", "rotary_embedding"), "operators"),
    "attention": "operators.attention.calls",
    "attention_backward": "operators.attention.gradient_calls",
    "attention_varlen_backward": "operators.attention.gradient_calls",
    "attention_decode": "operators.attention.decode",
    "attention_varlen": "operators.attention.sequences",
    "Report": "emulator.diagnosis.report",
    "config": "settings",
    "__version__": "version",
}
_MODULES = ("asm", "errors", "types")
_PLUGS = ("torch", "jax")  # not in __all__: accessing one imports its framework

# The plugs are not part of `from warploom import *`: they need their framework, and would hide a module of that name.
__all__ = [*_HOME_OF, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES or name in _PLUGS:
        return import_module(f".{name}", __name__)
    if name in _HOME_OF:
        found = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
        globals()[name] = found  # so that this function runs once for each name: a call of `matmul` costs microseconds
        return found
    raise AttributeError(f"module 'warploom' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PLUGS])
