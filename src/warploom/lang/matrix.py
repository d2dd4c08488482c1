"""Warp-level matrices: `ptx.ldmatrix`, `ptx.stmatrix`, `ptx.mma_sync` (PTX ISA 9.7.14.5)."""

from __future__ import annotations

from typing import Any

from ..isa import dtypes
from ..isa.dtypes import DType
from .arrays import RegisterArray
from .emit import issue
from .trace import Trace
from .values import Register


def _count(trace: Trace, n: int) -> int:
    if n not in (1, 2, 4):
        raise trace.error("ldmatrix and stmatrix move 1, 2 or 4 matrices of 8 x 8", got=n)
    return n


def ldmatrix(address: Any, n: int = 4, *, trans: bool = False, dtype: DType = dtypes.b32) -> RegisterArray:
    """ldmatrix.sync.aligned.m8n8.x<n>.shared.b16: n matrices of 8 x 8 16-bit elements into n new 32-bit registers.

    Lane 8j + i passes the address of row i of matrix j (16 bytes, 16-byte aligned). Register j of lane l holds row l/4,
    columns 2(l%4) and the next; with `trans`, those of the transposed matrix.
    """
    trace = Trace.current()
    result = RegisterArray([Register(trace, dtype) for _ in range(_count(trace, n))])
    issue(f"ldmatrix.sync.aligned.m8n8.x{n}{'.trans' if trans else ''}.shared.b16", result, address, trace=trace)
    return result


def stmatrix(address: Any, values: RegisterArray | list[Register], *, trans: bool = False) -> None:
    """stmatrix.sync.aligned.m8n8.x<n>.shared.b16: the inverse of `ldmatrix` (sm_90)."""
    trace = Trace.current()
    n = _count(trace, len(values))
    issue(f"stmatrix.sync.aligned.m8n8.x{n}{'.trans' if trans else ''}.shared.b16", address, values, trace=trace)


def mma_sync(
    *,
    shape: tuple[int, int, int],
    dtype_d: DType,
    dtype_a: DType,
    dtype_b: DType,
    d: Any,
    a: Any,
    b: Any,
    c: Any = None,
) -> None:
    """mma.sync.aligned.m<m>n<n>k<k>.row.col: d = a @ b + c in one warp; by default c is d.

    The registers of each operand, and their elements: `warploom.types` fragments, PTX ISA 9.7.14.5.
    """
    trace = Trace.current()
    m, n, k = shape
    types = [dtypes.of(t) for t in (dtype_d, dtype_a, dtype_b)]
    opcode = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types[0]}.{types[1]}.{types[2]}.{types[0]}"
    issue(opcode, d, a, b, d if c is None else c, trace=trace)
