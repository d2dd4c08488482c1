"""The other contenders of a comparison: cuBLAS in its several forms, Triton, torch, and optional packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from ..errors import ArgumentError, DriverError
from ..runtime.benchmark.gpu import CudaTimer
from .attention_contenders import TorchAttention, WarploomBf16
from .attention_operands import AttentionOperands
from .attention_problem import FORWARD, ForwardProblem
from .contender import COMPILE_S, Beat, Contender, Prepared
from .operands import Operands
from .work import GemmWork, Work

MOST_LAUNCHES = 500
"""Launches of one configuration while the fastest is searched."""
FEW_ROWS = 512
C = TypeVar("C", bound="_Named")
Call = Callable[[], Any]


class _Named(Protocol):
    def name(self) -> str: ...


# -- cuBLAS through torch ------------------------------------------------------------------------------------------


class Cublas(Contender):
    """torch.mm."""

    name = "cublas"

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        import torch

        def one(o: Operands) -> Callable[[], object]:
            a, b, out = o.a, o.b.T, o.out
            return lambda: torch.mm(a, b, out=out)

        return Prepared([one(o) for o in sets], "torch.mm")


class ScaledMm(Contender):
    """torch._scaled_mm. The row-wise one also accepts tensor-wise scales: one number repeated for each row."""

    dtypes = ("e4m3", "e5m2")

    def __init__(self, scales: str) -> None:
        self.name = {"tensor": "scaled-mm", "row": "scaled-mm-row", "block128": "scaled-mm-block"}[scales]
        self.scales = ("row", "tensor") if scales == "row" else (scales,)
        self._own = scales

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        import torch

        def one(o: Operands) -> Callable[[], object]:
            a, b, out, scale_a, scale_b = o.a, o.b.T, o.out, o.scale_a, o.scale_b
            if self._own == "row":
                scale_a = scale_a.expand(problem.m, 1).contiguous()
                scale_b = scale_b.expand(problem.n, 1).contiguous().T
            elif problem.scales == "block128":
                scale_b = scale_b.T
            fast = problem.scales != "block128"
            kind = out.dtype
            return lambda: torch._scaled_mm(
                a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=kind, out=out, use_fast_accum=fast
            )

        return Prepared([one(o) for o in sets], "torch._scaled_mm", self._own)


class CublasLtBest(Contender):
    """The fastest of up to twelve algorithms that cublasLt proposes."""

    name = "cublaslt-best"
    dtypes = ("bf16", "f16", "f32", "e4m3")
    scales = ("", "tensor")

    def missing(self, problem: Work | None = None) -> str | None:
        reason = super().missing(problem)
        if reason is None and problem is not None:
            from . import cublaslt

            if cublaslt.path() is None:
                return "torch has loaded no libcublasLt"
        return reason

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        from . import cublaslt

        library = cublaslt.CublasLt(cublaslt.path() or "")
        # the scales' addresses are part of a description, so each set has its own
        products = [cublaslt.Matmul(library, problem, o) for o in (sets if problem.scales else sets[:1])]
        timer, proposals = CudaTimer(), products[0].proposals
        if not proposals:
            raise ArgumentError("cublasLt proposes no algorithm for this problem", got=problem.shape)

        def timed(at: int) -> float:
            beat(f"{self.name}, proposal {at}", 20.0)
            call = products[0].caller(sets[0], proposals[at])
            try:
                timer.timed(call, 1)
                return timer.timed(call, max(2, int(2e12 / problem.flops)))
            except DriverError:  # a proposal that does not run
                return float("inf")

        best = cublaslt.fastest(proposals, timed)
        each = products if problem.scales else products * len(sets)
        calls = [product.caller(o, proposals[best]) for product, o in zip(each, sets, strict=True)]
        return Prepared(calls, "cublasLtMatmul", f"proposal {best} of {len(proposals)}")


# -- Triton --------------------------------------------------------------------------------------------------------


def fastest(
    who: str, problem: Work, configs: Sequence[C], caller: Callable[[C], Call], beat: Beat,
    usable: Callable[[], bool] = lambda: True,
) -> C:  # fmt: skip
    """The configuration whose calls take the shortest time. Raises ArgumentError if none runs.

    usable: false after the first call of one whose result cannot be right.
    """
    import torch

    timer = CudaTimer()
    times: dict[C, float] = {}
    failures = []
    for config in configs:
        beat(f"{who}, compiling {config.name()}", COMPILE_S)
        call = caller(config)
        try:
            call()
            torch.cuda.synchronize()
            if not usable():
                failures.append(f"{config.name()}: a wrong result")
                continue
        except Exception as error:  # noqa: BLE001 - a configuration that does not compile is left out
            failures.append(f"{config.name()}: {type(error).__name__}: {str(error).splitlines()[0][:120]}")
            continue
        beat(f"{who}, {config.name()}", 20.0)
        launches = min(max(3, int(4e12 / problem.flops)), MOST_LAUNCHES)
        times[config] = min(timer.timed(call, launches) for _ in range(3))
    if not times:
        raise ArgumentError("no configuration of the Triton kernel runs here", got="; ".join(failures))
    return min(times, key=lambda config: times[config])


class Triton(Contender):
    """Our own persistent kernel in Triton, the fastest of its configurations."""

    name = "triton"
    needs = "triton"
    dtypes = ("bf16", "f16", "e4m3")
    scales = ("", "tensor")

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        import torch

        from . import triton_matmul as ours

        sms = torch.cuda.get_device_properties(0).multi_processor_count
        best = fastest(
            self.name, problem, ours.configs(problem), lambda one: ours.caller(problem, sets[0], one, sms), beat
        )
        return Prepared([ours.caller(problem, o, best, sms) for o in sets], "triton persistent", best.name())


class TritonSplitK(Triton):
    """Split-K in Triton, the fastest of its configurations: for products of few rows."""

    name = "triton-split-k"

    def missing(self, problem: Work | None = None) -> str | None:
        reason = super().missing(problem)
        if reason is None and isinstance(problem, GemmWork) and problem.m > FEW_ROWS:
            return f"it is for at most {FEW_ROWS} rows"
        return reason

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        from . import triton_split_k as ours

        best = fastest(self.name, problem, ours.configs(problem), lambda one: ours.caller(problem, sets[0], one), beat)
        return Prepared([ours.caller(problem, o, best) for o in sets], "triton split-K", best.name())


class TritonAttention(Contender):
    """Our own forward pass of attention in Triton, the fastest of its configurations."""

    name = "triton-attention"
    needs = "triton"
    dtypes = ("bf16", "f16")
    kinds = (FORWARD,)
    heads = (64, 128)
    multiple = 128

    def missing(self, problem: Work | None = None) -> str | None:
        """Its tiles are not cut."""
        reason = super().missing(problem)
        if reason is not None or not isinstance(problem, ForwardProblem):
            return reason
        if problem.window or problem.head_dim not in self.heads or problem.columns != problem.head_dim:
            return f"it has no {'window' if problem.window else 'such head dimension'}"
        return f"it takes lengths that are multiples of {self.multiple}" if problem.length % self.multiple else None

    def prepare(self, problem: ForwardProblem, sets: Sequence[AttentionOperands], beat: Beat) -> Prepared:
        import torch

        from . import triton_attention as ours

        def call(config: ours.Config) -> Call:
            sets[0].clear()
            return ours.caller(problem, sets[0], config)

        def finite() -> bool:
            return bool(torch.isfinite(sets[0].out).all())  # Triton 3.6's specialised warps may give NaN

        best = fastest(self.name, problem, ours.configs(problem), call, beat, finite)
        return Prepared([ours.caller(problem, one, best) for one in sets], "triton attention", best.name())


# -- fused and grouped products in torch ---------------------------------------------------------------------------


class TorchFused(Contender):
    """What a model calls: F.linear and the activation, eager or compiled."""

    kinds = ("gelu", "swiglu")

    def __init__(self, compiled: bool) -> None:
        self.name = "torch-compile" if compiled else "torch-eager"
        self._compiled = compiled

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        import torch
        import torch.nn.functional as F  # noqa: N812

        def end(*products: Any) -> Any:
            return F.gelu(products[0]) if problem.kind == "gelu" else F.silu(products[0]) * products[1]

        finish = end
        if self._compiled:
            beat(f"{self.name}, compiling", COMPILE_S)
            finish = torch.compile(end)

        def one(o: Operands) -> Callable[[], object]:
            def call() -> None:
                if problem.kind == "gelu":
                    result = finish(F.linear(o.a, o.b, o.bias))
                else:
                    result = finish(F.linear(o.a, o.b), F.linear(o.a, o.up))
                call.result = result  # type: ignore[attr-defined]

            return call

        calls = [one(o) for o in sets]
        for call in calls:
            call()
        return Prepared(calls, "F.linear + activation", "compiled" if self._compiled else "eager")


class Loop(Contender):
    """A grouped product as a loop of cuBLAS calls."""

    name = "loop"
    kinds = ("grouped",)
    dtypes = ("bf16", "f16", "e4m3")
    scales = ("", "row")

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        import torch

        spans, first = [], 0
        for expert, rows in enumerate(problem.rows):
            if rows:
                spans.append((expert, first, first + rows))
            first += rows

        def one(o: Operands) -> Callable[[], None]:
            def call() -> None:
                for expert, begin, end in spans:
                    a, b, out = o.a[begin:end], o.b[expert].T, o.out[begin:end]
                    if problem.scales:
                        scale_a, scale_b = o.scale_a[begin:end], o.scale_b[expert].T
                        torch._scaled_mm(a, b, scale_a=scale_a, scale_b=scale_b, out_dtype=out.dtype, out=out,
                                         use_fast_accum=True)  # fmt: skip
                    else:
                        torch.mm(a, b, out=out)

            return call

        return Prepared([one(o) for o in sets], "a loop of torch.mm")


class TorchGrouped(Contender):
    """torch._grouped_mm and torch._scaled_grouped_mm."""

    name = "torch-grouped"
    kinds = ("grouped",)
    dtypes = ("bf16", "e4m3")
    scales = ("", "row")

    def missing(self, problem: Work | None = None) -> str | None:
        reason = super().missing(problem)
        if reason is None:
            import torch

            if not hasattr(torch, "_grouped_mm"):
                return f"torch {torch.__version__} has no _grouped_mm"
        return reason

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        import torch

        def one(o: Operands) -> Callable[[], None]:
            b = o.b.transpose(1, 2)

            def call() -> None:
                if problem.scales:
                    call.result = torch._scaled_grouped_mm(  # type: ignore[attr-defined]
                        o.a, b, o.scale_a.reshape(-1), o.scale_b.reshape(len(problem.rows), -1), offs=o.ends,
                        out_dtype=o.out.dtype, use_fast_accum=True,
                    )  # fmt: skip
                else:
                    call.result = torch._grouped_mm(o.a, b, offs=o.ends)  # type: ignore[attr-defined]

            return call

        return Prepared([one(o) for o in sets], "torch._grouped_mm")


# -- what may be installed besides ---------------------------------------------------------------------------------


class DeepGemm(Contender):
    """DeepGEMM's bf16 product and its fp8 one with block scales."""

    name = "deepgemm"
    needs = "deep_gemm"
    dtypes = ("bf16", "e4m3")
    scales = ("", "block128")

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        import deep_gemm  # type: ignore[import-not-found]

        beat(f"{self.name}, compiling", COMPILE_S)

        def one(o: Operands) -> Callable[[], object]:
            if problem.scales:
                a, b = (o.a, o.scale_a.T.contiguous().T), (o.b, o.scale_b)
                return lambda: deep_gemm.fp8_gemm_nt(a, b, o.out)
            return lambda: deep_gemm.bf16_gemm_nt(o.a, o.b, o.out)

        return Prepared([one(o) for o in sets], "deep_gemm")


class Quack(Contender):
    """quack's tuned bf16 product."""

    name = "quack"
    needs = "quack"
    dtypes = ("bf16", "f16")

    def prepare(self, problem: GemmWork, sets: Sequence[Operands], beat: Beat) -> Prepared:
        from quack.gemm_interface import gemm  # type: ignore[import-not-found]

        beat(f"{self.name}, compiling and tuning", COMPILE_S)

        def one(o: Operands) -> Callable[[], object]:
            b = o.b.T
            return lambda: gemm(o.a, b, out=o.out)

        return Prepared([one(o) for o in sets], "quack.gemm")


OTHERS: tuple[Contender, ...] = (
    Cublas(), CublasLtBest(), Triton(), TritonSplitK(), ScaledMm("tensor"), ScaledMm("row"), ScaledMm("block128"),
    TorchFused(False), TorchFused(True), Loop(), TorchGrouped(), DeepGemm(), Quack(), TorchAttention("cudnn"),
    TorchAttention("flash"), TritonAttention(), WarploomBf16(),
)  # fmt: skip


def find(name: str) -> Contender:
    """The contender with a name. Raises ArgumentError for an unknown one."""
    for contender in OTHERS:
        if contender.name == name:
            return contender
    raise ArgumentError(
        f"unknown contender {name!r}",
        expected=", ".join(each.name for each in OTHERS),
        got=repr(name),
        code="unknown-name",
    )
