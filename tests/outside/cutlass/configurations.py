"""Which CUTLASS kernels are built, as data, and the configuration.hpp that says it to gemm.cu and grouped.cu."""

from __future__ import annotations

from dataclasses import dataclass, field

TYPES = {
    "bf16": "cutlass::bfloat16_t", "f16": "cutlass::half_t", "tf32": "cutlass::tfloat32_t", "f32": "float",
    "e4m3": "cutlass::float_e4m3_t",
}  # fmt: skip
STORED = {"tf32": "f32"}
"""What an array's elements are called in a launch description, where not as in TYPES."""


@dataclass(frozen=True)
class Expected:
    """What an array holds after the launch: a NumPy expression of the arrays before it.

    tolerance: relative and absolute; 0 for that of the dtype.
    """

    name: str
    value: str
    tolerance: float = 0.0


@dataclass(frozen=True)
class Gemm:
    """One product, or `sizes[3]` of them, by gemm.cu.

    Attributes:
        tile, cluster: M, N, K of a CTA's tile; CTAs of a cluster.
        schedule, epilogue: CUTLASS's names, behind `cutlass::gemm::Kernel` and `cutlass::epilogue::`.
        element, output: dtypes of A and B, and of C and D; output is element's where it is "".
        layout_a, layout_b: RowMajor A and ColumnMajor B have K innermost.
        sizes: M, N, K, L; multiprocessors: how many there seem to be.
        fusion: behind `cutlass::epilogue::fusion::`; set_fusion: statements on its arguments, `fused`.
        scheduler: of tiles, behind `cutlass::gemm::`; set_scheduler: statements on its arguments, `scheduler`.
        arch: 90, or 100 for Blackwell: a tile is then that of a pair of CTAs where the schedule is of two.
    """

    name: str
    tile: tuple[int, int, int]
    schedule: str
    epilogue: str = "TmaWarpSpecializedCooperative"
    cluster: tuple[int, int, int] = (1, 1, 1)
    element: str = "bf16"
    output: str = ""
    layout_a: str = "RowMajor"
    layout_b: str = "ColumnMajor"
    sizes: tuple[int, int, int, int] = (384, 256, 192, 1)
    multiprocessors: int = 4
    fusion: str = "LinearCombination<Output, float, Output, float>"
    set_fusion: str = "fused.alpha = 1.0f; fused.beta = 0.5f;"
    scheduler: str = ""
    set_scheduler: str = ""
    expected: tuple[Expected, ...] = field(default=(Expected("D", "A @ np.swapaxes(B, 1, 2) + 0.5 * C"),))
    source: str = "gemm.cu"
    arch: int = 90

    def header(self) -> str:
        """The text of configuration.hpp."""
        output = self.output or self.element
        m, n, k, batch = self.sizes
        return "\n".join([
            *_shapes(self),
            f"using Arch = cutlass::arch::Sm{self.arch};",
            f"using Element = {TYPES[self.element]};",
            f"using Output = {TYPES[output]};",
            f'char const* const ELEMENT = "{STORED.get(self.element, self.element)}";',
            f'char const* const OUTPUT = "{STORED.get(output, output)}";',
            f"using LayoutA = cutlass::layout::{self.layout_a};",
            f"using LayoutB = cutlass::layout::{self.layout_b};",
            f"using Fusion = cutlass::epilogue::fusion::{self.fusion};",
            f"using TileScheduler = {'cutlass::gemm::' + self.scheduler if self.scheduler else 'void'};",
            f"constexpr int M = {m}, N = {n}, K = {k}, L = {batch};",
            f"template <class T, class Stride> void set_fusion(T& fused, Stride stride) {{ {self.set_fusion} }}",
            f"template <class T> void set_scheduler(T& scheduler) {{ {self.set_scheduler} }}",
        ]) + "\n"  # fmt: skip

    def says(self) -> str:
        """The cell of the table."""
        sizes = "x".join(map(str, self.sizes[: 4 if self.sizes[3] > 1 else 3]))
        return f"{self.element}, {sizes}, {_form(self)}"


@dataclass(frozen=True)
class Grouped:
    """Several products by grouped.cu, in bf16; attributes as of Gemm.

    groups: M, N, K of each; of one size with `pointer_array`. shapes_on_host: whether the host knows the sizes, too.
    """

    name: str
    tile: tuple[int, int, int]
    schedule: str
    epilogue: str
    cluster: tuple[int, int, int] = (1, 1, 1)
    groups: tuple[tuple[int, int, int], ...] = ((128, 128, 64), (72, 256, 192), (0, 128, 64), (136, 64, 128))
    pointer_array: bool = False
    shapes_on_host: bool = True
    multiprocessors: int = 4
    source: str = "grouped.cu"
    arch: int = 90

    @property
    def expected(self) -> tuple[Expected, ...]:
        rows = [number for number, (m, _, _) in enumerate(self.groups) if m]
        return tuple(Expected(f"D{each}", f"A{each} @ B{each}.T + 0.5 * C{each}") for each in rows)

    def header(self) -> str:
        """The text of configuration.hpp."""
        groups = ", ".join(f"{{{m}, {n}, {k}}}" for m, n, k in self.groups)
        return "\n".join([
            *_shapes(self),
            f"#define GROUPS {{{groups}}}",
            f"#define POINTER_ARRAY {int(self.pointer_array)}",
            f"constexpr bool SHAPES_ON_HOST = {int(self.shapes_on_host)};",
        ]) + "\n"  # fmt: skip

    def says(self) -> str:
        """The cell of the table."""
        return f"bf16, {', '.join('x'.join(map(str, each)) for each in self.groups)}, {_form(self)}"


@dataclass(frozen=True)
class Tutorial:
    """A program of examples/cute/tutorial/blackwell by tutorial.cu: `program` its file's name; sizes M, N, K."""

    name: str
    program: str
    sizes: tuple[int, int, int] = (512, 1024, 128)
    source: str = "tutorial.cu"
    arch: int = 100
    expected: tuple[Expected, ...] = (Expected("D", "A @ B.T + 0.5 * C"),)

    def header(self) -> str:
        """The text of configuration.hpp."""
        m, n, k = self.sizes
        program = f"../examples/cute/tutorial/blackwell/{self.program}.cu"
        return f'#pragma once\n#include "{program}"\nconstexpr int M = {m}, N = {n}, K = {k};\n'

    def says(self) -> str:
        """The cell of the table."""
        return f"f16, {'x'.join(map(str, self.sizes))}, CuTe's tutorial {self.program}"


Configuration = Gemm | Grouped | Tutorial


def _shapes(one: Gemm | Grouped) -> list[str]:
    def shape(sizes: tuple[int, ...]) -> str:
        return ", ".join(f"_{size}" for size in sizes)

    return [
        "#pragma once",
        f"using TileShape = Shape<{shape(one.tile)}>;",
        f"using ClusterShape = Shape<{shape(one.cluster)}>;",
        f"using Schedule = cutlass::gemm::Kernel{one.schedule};",
        f"using EpilogueSchedule = cutlass::epilogue::{one.epilogue};",
        f"constexpr int MULTIPROCESSORS = {one.multiprocessors};",
    ]


def _form(one: Gemm | Grouped) -> str:
    tile, cluster = "x".join(map(str, one.tile)), "x".join(map(str, one.cluster))
    return f"tile {tile}, cluster {cluster}, {one.schedule}"


COOPERATIVE, PINGPONG = "TmaWarpSpecializedCooperative", "TmaWarpSpecializedPingpong"
_SUM = "A @ np.swapaxes(B, 1, 2) + 0.5 * C"
_BIAS = 'fused.bias_ptr = device_array<float>("bias", "f32", {M, 1});'

CONFIGURATIONS: tuple[Configuration, ...] = (
    Gemm("cooperative", (128, 128, 64), COOPERATIVE, cluster=(2, 1, 1)),
    Gemm("pingpong", (64, 256, 64), PINGPONG, "TmaWarpSpecialized", (1, 2, 1)),
    Gemm("ragged", (128, 128, 64), COOPERATIVE, cluster=(2, 1, 1), sizes=(200, 136, 72, 2)),
    Gemm(
        "batched-tf32", (128, 128, 32), PINGPONG, "TmaWarpSpecialized", (2, 2, 1), "tf32", "f32",
        sizes=(256, 128, 96, 3), expected=(Expected("D", _SUM, 0.05),),
    ),
    Gemm(
        "mn-major-f16", (128, 192, 64), PINGPONG, "TmaWarpSpecialized", element="f16", layout_a="ColumnMajor",
        layout_b="RowMajor", expected=(Expected("D", "np.swapaxes(A, 1, 2) @ B + 0.5 * C"),),
    ),
    Gemm(
        "row-bias-relu", (128, 64, 64), COOPERATIVE,
        fusion="LinCombPerRowBiasEltAct<cutlass::epilogue::thread::ReLu, Output, float, float, Output, float>",
        set_fusion=f"fused.alpha = 1.0f; fused.beta = 0.5f; {_BIAS}",
        expected=(Expected("D", f"np.maximum({_SUM} + bias, 0)"),),
    ),
    Gemm(
        "row-bias-silu-aux", (128, 128, 64), PINGPONG, "TmaWarpSpecialized",
        fusion="LinCombPerRowBiasEltActAux<cutlass::layout::RowMajor, cutlass::epilogue::thread::SiLu, Output, float, "
        "Output, float, Output, float>",
        set_fusion=f"fused.alpha = 1.0f; fused.beta = 0.5f; {_BIAS} "
        'fused.aux_ptr = device_array<Output>("aux", OUTPUT, {L, M, N}, "nan"); fused.dAux = stride;',
        expected=(
            Expected("aux", f"{_SUM} + bias"),
            Expected("D", f"({_SUM} + bias) / (1 + np.exp(-({_SUM} + bias)))"),
        ),
    ),
    Gemm(
        "stream-k", (128, 128, 64), COOPERATIVE, sizes=(384, 256, 640, 1), multiprocessors=5,
        scheduler="StreamKScheduler",
    ),
    Gemm(
        "split-k", (128, 128, 64), COOPERATIVE, sizes=(384, 256, 640, 1), multiprocessors=18,
        scheduler="StreamKScheduler", set_scheduler="scheduler.splits = 3;",
    ),
    Gemm(
        "blackwell-one-sm", (128, 128, 64), "TmaWarpSpecialized1SmSm100", "TmaWarpSpecialized1Sm", arch=100,
    ),
    Gemm(
        "blackwell-pair", (256, 128, 64), "TmaWarpSpecialized2SmSm100", "TmaWarpSpecialized2Sm", (2, 1, 1),
        sizes=(520, 256, 192, 1), arch=100,
    ),
    Gemm(
        "blackwell-pairs-f16", (256, 64, 64), "TmaWarpSpecialized2SmSm100", "TmaWarpSpecialized2Sm", (4, 2, 1), "f16",
        layout_a="ColumnMajor", layout_b="RowMajor", sizes=(1024, 192, 136, 2), arch=100, multiprocessors=16,
        expected=(Expected("D", "np.swapaxes(A, 1, 2) @ B + 0.5 * C"),),
    ),
    Tutorial("tutorial-one", "01_mma_sm100", (256, 512, 128)),
    Tutorial("tutorial-tma", "02_mma_tma_sm100", (256, 512, 128)),
    Tutorial("tutorial-multicast", "03_mma_tma_multicast_sm100"),
    Tutorial("tutorial-pair", "04_mma_tma_2sm_sm100"),
    Tutorial("tutorial-store", "05_mma_tma_epi_sm100"),
    Gemm("one-role", (128, 128, 64), "Tma", "NoSmemWarpSpecialized"),
    Gemm("cp-async", (128, 128, 64), "CpAsyncWarpSpecializedPingpong", "NoSmemWarpSpecialized"),
    Grouped(
        "grouped-cooperative", (128, 128, 64), "PtrArrayTmaWarpSpecializedCooperative",
        "PtrArrayTmaWarpSpecializedCooperative", (2, 1, 1),
    ),
    Grouped(
        "grouped-pingpong", (64, 128, 64), "PtrArrayTmaWarpSpecializedPingpong", "PtrArrayTmaWarpSpecializedPingpong",
        shapes_on_host=False,
    ),
    Grouped(
        "pointer-array", (128, 64, 32), "PtrArrayTmaWarpSpecializedCooperative",
        "PtrArrayTmaWarpSpecializedCooperative", (1, 2, 1), ((200, 128, 96),) * 3, pointer_array=True,
    ),
)  # fmt: skip
