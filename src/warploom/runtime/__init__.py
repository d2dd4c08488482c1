"""One call: choose the machine that runs it, check its arguments, and prepare what that machine needs."""

from ..isa.im2col import PixelBox
from .arrays import ArrayView, view
from .caller import Caller
from .machine import A100, B200, H100, H200, Machine
from .multimem import Multimem
from .on_clock import predict
from .on_cpu import emulate
from .on_gpu import build, launch
from .on_trace import trace
from .program import ArraySpec, Parameter, Program, TiledMap, program_of
from .struct import Struct
from .tensor_map import TensorMap

__all__ = [
    "A100",
    "B200",
    "H100",
    "H200",
    "ArraySpec",
    "ArrayView",
    "Caller",
    "Machine",
    "Multimem",
    "Parameter",
    "PixelBox",
    "Program",
    "Struct",
    "TensorMap",
    "TiledMap",
    "build",
    "emulate",
    "launch",
    "predict",
    "program_of",
    "trace",
    "view",
]
