"""The fastest algorithm that cublasLt itself proposes: what a user gets by tuning cuBLAS.

cublasLt is called through ctypes, in the library that torch has loaded. Matrices are column-major there, so the
row-major product D = A Bᵀ is requested as Dᵀ = B Aᵀ: B (N, K) row-major is a transposed K x N matrix, A (M, K) a K x M
matrix, D an N x M one. Names and numbers are those of cublasLt.h and library_types.h (CUDA 12 and
13).
"""

from __future__ import annotations

import ctypes
import random
import statistics
from collections.abc import Callable
from typing import Any

from ..errors import DriverError
from .operands import Operands
from .work import GemmWork

MOST = 12
WORKSPACE = 32 << 20
_COMPUTE_F32, _R_32F = 68, 0
_TYPES = {"f32": 0, "f16": 2, "bf16": 14, "e4m3": 28, "e5m2": 29}
_TRANSA, _A_SCALE, _B_SCALE, _FAST_ACCUMULATION = 3, 17, 18, 25
_OP_T = 1
_PREFERENCE_WORKSPACE = 1


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", ctypes.c_uint64 * 8),)


class _Proposal(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    )


def path() -> str | None:
    """The path of the cublasLt that this process has loaded; None if none is loaded."""
    try:
        with open("/proc/self/maps") as maps:
            for line in maps:
                if "libcublasLt.so" in line:
                    return line.split()[-1]
    except OSError:
        pass
    return None


class CublasLt:
    """A cublasLt handle. Raises DriverError with the function and its status if a call fails."""

    def __init__(self, library: str | Any) -> None:
        """library: path of libcublasLt; or, for tests, an object with its functions."""
        self._native = ctypes.CDLL(library) if isinstance(library, str) else library
        self.handle = ctypes.c_void_p()
        self.call("cublasLtCreate", ctypes.byref(self.handle))

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._native, name)(*arguments)
        if status:
            raise DriverError(f"{name} returned status {status}")

    def layout(self, dtype: str, rows: int, columns: int, stride: int) -> ctypes.c_void_p:
        """A column-major matrix."""
        made = ctypes.c_void_p()
        self.call(
            "cublasLtMatrixLayoutCreate", ctypes.byref(made), ctypes.c_int(_TYPES[dtype]), ctypes.c_uint64(rows),
            ctypes.c_uint64(columns), ctypes.c_int64(stride),
        )  # fmt: skip
        return made

    def set(self, description: ctypes.c_void_p, attribute: int, value: Any) -> None:
        self.call(
            "cublasLtMatmulDescSetAttribute", description, ctypes.c_int(attribute), ctypes.byref(value),
            ctypes.c_size_t(ctypes.sizeof(value)),
        )  # fmt: skip


def current_stream() -> int:
    """Handle of torch's current stream."""
    import torch

    return int(torch.cuda.current_stream().cuda_stream)


class Matmul:
    """One product: its description and the algorithms that cublasLt proposes for it, best guess first."""

    def __init__(self, library: CublasLt, problem: GemmWork, operands: Operands) -> None:
        import torch

        self._library = library
        m, n, k = problem.m, problem.n, problem.k
        self._description = ctypes.c_void_p()
        library.call(
            "cublasLtMatmulDescCreate", ctypes.byref(self._description), ctypes.c_int(_COMPUTE_F32),
            ctypes.c_int(_R_32F),
        )  # fmt: skip
        library.set(self._description, _TRANSA, ctypes.c_int32(_OP_T))
        if problem.scales:
            library.set(self._description, _A_SCALE, ctypes.c_void_p(operands.scale_b.data_ptr()))
            library.set(self._description, _B_SCALE, ctypes.c_void_p(operands.scale_a.data_ptr()))
            library.set(self._description, _FAST_ACCUMULATION, ctypes.c_int8(1))
        self._a = library.layout(problem.dtype, k, n, k)
        self._b = library.layout(problem.dtype, k, m, k)
        self._d = library.layout(problem.out, n, m, n)
        self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=operands.a.device)
        self._one, self._zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
        self.proposals = self._propose()

    def _propose(self) -> list[_Proposal]:
        library = self._library
        preference, count = ctypes.c_void_p(), ctypes.c_int(0)
        library.call("cublasLtMatmulPreferenceCreate", ctypes.byref(preference))
        size = ctypes.c_uint64(WORKSPACE)
        library.call(
            "cublasLtMatmulPreferenceSetAttribute", preference, ctypes.c_int(_PREFERENCE_WORKSPACE),
            ctypes.byref(size), ctypes.c_size_t(8),
        )  # fmt: skip
        found = (_Proposal * MOST)()
        library.call(
            "cublasLtMatmulAlgoGetHeuristic", library.handle, self._description, self._a, self._b, self._d, self._d,
            preference, ctypes.c_int(MOST), found, ctypes.byref(count),
        )  # fmt: skip
        library.call("cublasLtMatmulPreferenceDestroy", preference)
        return [found[at] for at in range(count.value) if found[at].state == 0]

    def caller(self, operands: Operands, proposal: _Proposal) -> Callable[[], None]:
        """A call with one algorithm, on torch's current stream."""
        library, native = self._library, self._library._native.cublasLtMatmul
        a, b, d = (ctypes.c_void_p(t.data_ptr()) for t in (operands.b, operands.a, operands.out))
        one, zero, algorithm = ctypes.byref(self._one), ctypes.byref(self._zero), ctypes.byref(proposal.algorithm)
        workspace, size = ctypes.c_void_p(self._workspace.data_ptr()), ctypes.c_size_t(WORKSPACE)
        handle, description = library.handle, self._description
        layouts = (self._a, self._b, self._d)

        def call() -> None:
            stream = ctypes.c_void_p(current_stream())
            status = native(
                handle, description, one, a, layouts[0], b, layouts[1], zero, d, layouts[2], d, layouts[2], algorithm,
                workspace, size, stream,
            )  # fmt: skip
            if status:
                raise DriverError(f"cublasLtMatmul returned status {status}")

        call.keeps = self  # type: ignore[attr-defined]
        return call


def fastest(
    proposals: list[_Proposal],
    timed: Callable[[int], float],
    rounds: int = 3,
    seed: int = 0,
) -> int:
    """Index of the proposal with the smallest median of `rounds` timings, each round in another order.

    timed: index of a proposal -> seconds. Raises the errors of `timed`.
    """
    order = random.Random(seed)
    times: dict[int, list[float]] = {at: [] for at in range(len(proposals))}
    for _ in range(rounds):
        for at in order.sample(range(len(proposals)), len(proposals)):
            times[at].append(timed(at))
    return min(times, key=lambda at: statistics.median(times[at]))
