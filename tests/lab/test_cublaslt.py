"""The calls of cublasLt against a mock library that computes with NumPy by cublasLt.h: column-major matrices."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from warploom.errors import DriverError  # noqa: E402
from warploom.lab import cublaslt, operands  # noqa: E402
from warploom.lab.work import GemmWork  # noqa: E402

TORCH = {0: torch.float32, 2: torch.float16, 14: torch.bfloat16, 28: torch.float8_e4m3fn}


class Pretended:
    """cublasLt: descriptions, layouts, a list of algorithms, and the product D = alpha op(A) op(B) + beta C."""

    def __init__(self, memory: dict[int, Any], states: tuple[int, ...] = (0, 0, 1)) -> None:
        self.memory, self.states = memory, states
        self.layouts: dict[int, tuple[int, int, int, int]] = {}
        self.attributes: dict[int, int] = {}
        self.preference: dict[int, int] = {}
        self.ran: list[int] = []

    def cublasLtCreate(self, handle: Any) -> int:  # noqa: N802
        handle._obj.value = 1
        return 0

    def cublasLtMatmulDescCreate(self, made: Any, compute: Any, scale: Any) -> int:  # noqa: N802
        assert (compute.value, scale.value) == (68, 0), "CUBLAS_COMPUTE_32F, CUDA_R_32F"
        made._obj.value = 2
        return 0

    def cublasLtMatmulDescSetAttribute(self, made: Any, name: Any, value: Any, size: Any) -> int:  # noqa: N802
        assert size.value == {3: 4, 17: 8, 18: 8, 25: 1}[name.value]
        self.attributes[name.value] = value._obj.value
        return 0

    def cublasLtMatrixLayoutCreate(self, made: Any, kind: Any, rows: Any, columns: Any, stride: Any) -> int:  # noqa: N802
        made._obj.value = 100 + len(self.layouts)
        self.layouts[made._obj.value] = (kind.value, rows.value, columns.value, stride.value)
        return 0

    def cublasLtMatmulPreferenceCreate(self, made: Any) -> int:  # noqa: N802
        made._obj.value = 3
        return 0

    def cublasLtMatmulPreferenceSetAttribute(self, made: Any, name: Any, value: Any, size: Any) -> int:  # noqa: N802
        self.preference[name.value] = value._obj.value
        return 0

    def cublasLtMatmulPreferenceDestroy(self, made: Any) -> int:  # noqa: N802
        return 0

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:  # noqa: N802
        wanted, found, count = arguments[7:]
        assert wanted.value == 12
        for at, state in enumerate(self.states):
            found[at].state, found[at].algorithm.data[0] = state, 50 + at
        count._obj.value = len(self.states)
        return 0

    def cublasLtMatmul(self, *arguments: Any) -> int:  # noqa: N802
        _, _, alpha, a, a_layout, b, b_layout, beta, c, _, d, d_layout, algorithm, _, _, _ = arguments
        assert (alpha._obj.value, beta._obj.value, c.value) == (1.0, 0.0, d.value)
        self.ran.append(algorithm._obj.data[0])
        left = self._matrix(a, a_layout)
        left = left.T if self.attributes.get(3) == 1 else left
        right = self._matrix(b, b_layout)
        product = left @ right
        for name in (17, 18):
            if name in self.attributes:
                product = product * self.memory[self.attributes[name]].double()
        kind, rows, columns, stride = self.layouts[d_layout.value]
        assert product.shape == (rows, columns)
        out = self.memory[d.value]
        assert out.dtype == TORCH[kind]
        out.copy_(product.T.reshape(out.shape).to(out.dtype))
        return 0

    def _matrix(self, pointer: Any, layout: Any) -> Any:
        """Column-major: columns are `stride` elements apart."""
        kind, rows, columns, stride = self.layouts[layout.value]
        stored = self.memory[pointer.value]
        assert stored.dtype == TORCH[kind] and stride == rows
        return stored.reshape(columns, rows).T.double()


def prepared(problem: GemmWork, **options: Any) -> tuple[Any, Pretended, Any]:
    (one,) = operands.make(problem, device="cpu")
    arrays = [x for x in (one.a, one.b, one.out, one.scale_a, one.scale_b) if x is not None]
    pretended = Pretended({x.data_ptr(): x for x in arrays}, **options)
    return one, pretended, cublaslt.Matmul(cublaslt.CublasLt(pretended), problem, one)


@pytest.mark.parametrize("problem", [GemmWork(40, 48, 64), GemmWork(40, 48, 64, dtype="e4m3", scales="tensor"),
                                     GemmWork(24, 16, 8, dtype="f16", out="f16")], ids=lambda p: p.dtype)  # fmt: skip
def test_a_row_major_product_is_asked_for_in_columns(problem: GemmWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "current_stream", lambda: 0)
    one, pretended, matmul = prepared(problem)
    one.out.fill_(float("nan"))
    matmul.caller(one, matmul.proposals[1])()
    assert operands.reference(problem, one).errors(one.out)[1]
    assert pretended.ran == [51]
    assert pretended.preference == {1: cublaslt.WORKSPACE}
    assert pretended.attributes.get(25, 0) == (1 if problem.scales else 0), "fp8 accumulates fast"


def test_proposals_that_cublaslt_marks_as_unusable_are_left_out() -> None:
    _, _, matmul = prepared(GemmWork(40, 48, 64), states=(1, 0, 1, 0))
    assert [proposal.algorithm.data[0] for proposal in matmul.proposals] == [51, 53]


def test_the_result_structure_has_the_size_of_the_librarys() -> None:
    assert ctypes.sizeof(cublaslt._Proposal) == 64 + 8 + 4 + 4 + 16


def test_a_call_that_fails_is_an_error_with_the_functions_name() -> None:
    class Failing(Pretended):
        def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:  # noqa: N802
            return 15

    (one,) = operands.make(GemmWork(40, 48, 64), device="cpu")
    with pytest.raises(DriverError):
        cublaslt.Matmul(cublaslt.CublasLt(Failing({})), GemmWork(40, 48, 64), one)
