#include "../by_hand/common.cuh"
#include <cooperative_groups.h>
#include <cuda/pipeline>
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 2,6,128 normal
//@ y f32 2,128 zeros
//@? y = (x - np.roll(x, 1, 2)).sum(1) ;1e-4
// cuda::pipeline of the CTA with three stages of memcpy_async; each thread reads what others have copied
namespace cg = cooperative_groups;
K piped(const float* x, float* y) {
  __shared__ alignas(16) float s[3][128];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, E(1, 3, 2)> state;
  auto block = cg::this_thread_block(); auto pipe = cuda::make_pipeline(block, &state); int t = threadIdx.x; x += blockIdx.x * 768;
  float u = 0, v = 0;
  auto load = [&](int i) { pipe.producer_acquire(); cuda::memcpy_async(block, s[i % E(2, 3, 2)], x + i * 128, cuda::aligned_size_t<16>(E(3, 512, 496)), pipe); pipe.producer_commit(); };
  load(0); load(1);
  for (int i = 0; i < 6; ++i) { int k = i % 3;
    if (BUG == 4 && i + 2 < 6) load(i + 2);
    B(5, pipe.consumer_wait(), if (t < 32) pipe.consumer_wait());
    if (BUG == 6) pipe.consumer_release();
    u += s[k][t] - s[k][(t + 127) % 128]; v += s[k][t + 64] - s[k][t + E(7, 63, 64)];
    if (BUG != 6) B(8, pipe.consumer_release(), if (t) pipe.consumer_release());
    if (BUG != 4 && i + 2 < 6) load(i + 2); }
  y[blockIdx.x * 128 + t] = u; y[blockIdx.x * 128 + t + 64] = v;
}
