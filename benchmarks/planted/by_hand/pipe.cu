#include "common.cuh"
#include <cuda/pipeline>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
//arch sm_80
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 2,6,64 normal
//@ y f32 2,64 zeros
//@? y = np.roll(x.sum(1), 1, 1) ;1e-4
K pipe(const float* x, float* y) {
  __shared__ alignas(16) float s[2][64]; __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 2> st;
  auto b = cg::this_thread_block(); auto p = cuda::make_pipeline(b, &st); int t = threadIdx.x; x += blockIdx.x * 384; float acc = 0;
  auto issue = [&](int i) { p.producer_acquire(); cuda::memcpy_async(&s[E(1, i & 1, i % 3 & 1)][t], x + i * 64 + t, cuda::aligned_size_t<4>(4), p); p.producer_commit(); };
  issue(0);
  for (int i = 0; i < 6; ++i) {
    if (i + 1 < 6) issue(i + 1);
    B(2, p.consumer_wait(), if (i != 3) p.consumer_wait());
    if (BUG == 3) { p.consumer_release(); acc += s[i & 1][(t + 63) % 64]; }
    else { acc += s[E(4, i & 1, (i + 1) & 1)][(t + 63) % 64]; if (BUG == 5) { if (t != 5) p.consumer_release(); } else p.consumer_release(); }
  }
  y[blockIdx.x * 64 + t] = acc;
}
