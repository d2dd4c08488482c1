// The launch of a program of CUTLASS's examples/cute/tutorial/blackwell as JSON: its host code runs, up to the launch.
#include "pretended_device.hpp"

#include "cutlass/cluster_launch.hpp"
#include "cute/util/debug.hpp"

namespace cutlass {
// In place of launch_kernel_on_cluster.
template <class... Parameters>
Status written_down(ClusterLaunchParams const& how, void const*, Parameters const&... parameters) {
  describe_all(how.grid_dims, how.block_dims, how.cluster_dims, how.smem_size_in_bytes, parameters...);
  return Status::kSuccess;
}
}  // namespace cutlass

#undef CUTE_CHECK_LAST
#undef CUTE_CHECK_ERROR
#define CUTE_CHECK_LAST()
#define CUTE_CHECK_ERROR(call)
#define launch_kernel_on_cluster written_down
#define main main_of_the_tutorial
#include "configuration.hpp"
#undef main

int main() {
  using namespace cute;
  auto a = device_array<cutlass::half_t>("A", "f16", {M, K});
  auto b = device_array<cutlass::half_t>("B", "f16", {N, K});
  auto c = device_array<float>("C", "f32", {M, N});
  auto d = device_array<float>("D", "f32", {M, N}, "nan");
  auto rows = [](int height, int width) {
    return make_layout(make_shape(height, width), make_stride(width, Int<1>{}));
  };
  gemm_host_f16xf16_f32_f32_tnt(a, rows(M, K), b, rows(N, K), c, rows(M, N), d, rows(M, N), 1.0f, 0.5f);
}
