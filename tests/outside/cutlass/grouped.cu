// One CUTLASS kernel for several products D_i = A_i @ B_i + 0.5 * C_i, of what configuration.hpp says, and its launch
// as JSON: groups of their own sizes, or an array of pointers to products of one size (POINTER_ARRAY).
#include "pretended_device.hpp"

#include <array>

#include "cutlass/cutlass.h"
#include "cute/tensor.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/default_epilogue.hpp"
#include "cutlass/epilogue/thread/linear_combination.h"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/gemm/device/gemm_universal_adapter.h"
#include "cutlass/gemm/dispatch_policy.hpp"
#include "cutlass/gemm/group_array_problem_shape.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"
#include "cutlass/util/packed_stride.hpp"
using namespace cute;
#include "configuration.hpp"

using Element = cutlass::bfloat16_t;
#if POINTER_ARRAY
using Problem = cutlass::gemm::ArrayProblemShape<Shape<int, int, int, int>>;
template <class Layout> using Each = Layout;
#else
using Problem = cutlass::gemm::GroupProblemShape<Shape<int, int, int>>;
template <class Layout> using Each = Layout*;
#endif
using Row = Each<cutlass::layout::RowMajor>;
using Column = Each<cutlass::layout::ColumnMajor>;

using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, Element, Row, 8, Element, Row, 8, EpilogueSchedule,
    cutlass::epilogue::fusion::LinearCombination<Element, float>>::CollectiveOp;
using MainLoop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, Row, 8, Element, Column, 8, float, TileShape, ClusterShape,
    cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename Epilogue::SharedStorage))>,
    Schedule>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, MainLoop, Epilogue>;
template __global__ void cutlass::device_kernel<Kernel>(CUTLASS_GRID_CONSTANT typename Kernel::Params const);

int main() {
  std::vector<std::array<int, 3>> sizes GROUPS;
  std::vector<Shape<int, int, int>> shapes;
  std::vector<Element*> all_a, all_b, all_d;
  std::vector<Element const*> all_c;
  std::vector<typename Kernel::InternalStrideA> strides_a;
  std::vector<typename Kernel::InternalStrideB> strides_b;
  std::vector<typename Kernel::InternalStrideC> strides_c;
  for (auto [m, n, k] : sizes) {  // a group without rows has no A, C and D
    auto number = std::to_string(shapes.size());
    shapes.push_back(make_shape(m, n, k));
    all_a.push_back(m ? device_array<Element>("A" + number, "bf16", {m, k}) : nullptr);
    all_b.push_back(device_array<Element>("B" + number, "bf16", {n, k}));
    all_c.push_back(m ? device_array<Element>("C" + number, "bf16", {m, n}) : nullptr);
    all_d.push_back(m ? device_array<Element>("D" + number, "bf16", {m, n}, "nan") : nullptr);
    strides_a.push_back(cutlass::make_cute_packed_stride(typename Kernel::InternalStrideA{}, {m, k, 1}));
    strides_b.push_back(cutlass::make_cute_packed_stride(typename Kernel::InternalStrideB{}, {n, k, 1}));
    strides_c.push_back(cutlass::make_cute_packed_stride(typename Kernel::InternalStrideC{}, {m, n, 1}));
  }
  auto a = (Element const**)copied("pointers_a", all_a);
  auto b = (Element const**)copied("pointers_b", all_b);
  auto d = copied("pointers_d", all_d);
  auto c = copied("pointers_c", all_c);
#if POINTER_ARRAY
  auto [m, n, k] = sizes[0];
  typename Kernel::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kArray, {{m, n, k, int(sizes.size())}}, {a, strides_a[0], b, strides_b[0]},
      {{}, c, strides_c[0], d, strides_c[0]}};
#else
  auto shapes_there = copied("shapes", shapes);
  auto strides_a_there = copied("strides_a", strides_a);
  auto strides_b_there = copied("strides_b", strides_b);
  auto strides_c_there = copied("strides_c", strides_c);
  typename Kernel::Arguments arguments{
      cutlass::gemm::GemmUniversalMode::kGrouped,
      {int(sizes.size()), shapes_there, SHAPES_ON_HOST ? shapes.data() : nullptr},
      {a, strides_a_there, b, strides_b_there}, {{}, c, strides_c_there, d, strides_c_there}};
  arguments.epilogue.thread.dAlpha = {_0{}, _0{}, 0};
  arguments.epilogue.thread.dBeta = {_0{}, _0{}, 0};
#endif
  arguments.epilogue.thread.alpha = 1.0f;
  arguments.epilogue.thread.beta = 0.5f;
  arguments.hw_info.device_id = 0;
  arguments.hw_info.sm_count = MULTIPROCESSORS;
  arguments.hw_info.max_active_clusters = MULTIPROCESSORS / int(size(ClusterShape{}));
  long needed = Kernel::get_workspace_size(arguments);
  void* workspace = needed ? device_array<char>("workspace", "u8", {needed}, "zeros") : nullptr;
  auto parameter = Kernel::to_underlying_arguments(arguments, workspace);
  describe(parameter, Kernel::get_grid_shape(parameter), Kernel::get_block_shape(),
           dim3(size<0>(ClusterShape{}), size<1>(ClusterShape{}), size<2>(ClusterShape{})), Kernel::SharedStorageSize);
}
