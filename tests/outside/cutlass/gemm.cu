// One CUTLASS kernel for D = alpha * A @ B + beta * C, of what configuration.hpp says, and its launch as JSON.
#include "pretended_device.hpp"

#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/default_epilogue.hpp"
#include "cutlass/epilogue/fusion/operations.hpp"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/gemm/kernel/tile_scheduler.hpp"
#include "cutlass/util/packed_stride.hpp"
using namespace cute;
#include "configuration.hpp"

using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
template <class T> constexpr int aligned = 128 / cutlass::sizeof_bits<T>::value;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    Arch, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, Output, Row, aligned<Output>, Output, Row,
    aligned<Output>, EpilogueSchedule, Fusion>::CollectiveOp;
using MainLoop = typename cutlass::gemm::collective::CollectiveBuilder<
    Arch, cutlass::arch::OpClassTensorOp, Element, LayoutA, aligned<Element>, Element, LayoutB,
    aligned<Element>, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
    Schedule>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, MainLoop, Epilogue, TileScheduler>;
template __global__ void cutlass::device_kernel<Kernel>(CUTLASS_GRID_CONSTANT typename Kernel::Params const);

int main() {
  using Sizes = std::vector<long>;
  auto a = device_array<Element>("A", ELEMENT, std::is_same_v<LayoutA, Row> ? Sizes{L, M, K} : Sizes{L, K, M});
  auto b = device_array<Element>("B", ELEMENT, std::is_same_v<LayoutB, Column> ? Sizes{L, N, K} : Sizes{L, K, N});
  auto c = device_array<Output>("C", OUTPUT, {L, M, N});
  auto d = device_array<Output>("D", OUTPUT, {L, M, N}, "nan");
  auto stride_a = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, make_shape(M, K, L));
  auto stride_b = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, make_shape(N, K, L));
  auto stride_c = cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, make_shape(M, N, L));
  typename Kernel::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGemm, {M, N, K, L}, {a, stride_a, b, stride_b},
      {{}, c, stride_c, d, stride_c}};
  set_fusion(arguments.epilogue.thread, stride_c);
  set_scheduler(arguments.scheduler);
  arguments.hw_info.device_id = 0;
  arguments.hw_info.sm_count = MULTIPROCESSORS;
  arguments.hw_info.max_active_clusters = MULTIPROCESSORS / int(size(ClusterShape{}));
  long needed = Kernel::get_workspace_size(arguments);
  void* workspace = needed ? device_array<char>("workspace", "u8", {needed}, "zeros") : nullptr;
  auto parameter = Kernel::to_underlying_arguments(arguments, workspace);
  describe(parameter, Kernel::get_grid_shape(parameter), Kernel::get_block_shape(),
           dim3(size<0>(ClusterShape{}), size<1>(ClusterShape{}), size<2>(ClusterShape{})), Kernel::SharedStorageSize);
}
