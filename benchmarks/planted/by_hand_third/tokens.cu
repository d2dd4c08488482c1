#include "../by_hand/common.cuh"
#include <cuda/barrier>
//@ grid=[2,1,1];block=[96,1,1]
//@ x f32 2,6,64 normal
//@ y f32 2,64 zeros
//@? y = (x * np.arange(1, 7)[None,:,None]).sum(1) ;1e-4
// cuda::barrier with tokens: a warp fills two buffers, two warps take them
using Bar = cuda::barrier<cuda::thread_scope_block>;
K tokens(const float* x, float* y) {
  __shared__ float s[2][64];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Bar ready[2], filled[2]; int t = threadIdx.x; x += blockIdx.x * 384;
  if (t == 0) for (int i = 0; i < 2; ++i) { init(&ready[i], E(1, 96, 95)); init(&filled[i], 96); }
  B(2, __syncthreads(), );
  if (t < 32) {
    for (int i = 0; i < 6; ++i) { int k = i & 1;
      B(3, ready[k].arrive_and_wait(), ready[k].arrive());
      s[k][t] = x[i * 64 + t]; s[k][t + 32] = x[i * 64 + t + E(4, 32, 31)];
      B(5, filled[k].arrive(), filled[E(5, k, 0)].arrive()); }
  } else {
    float v = 0; int c = t - 32;
    ready[0].arrive(); B(6, ready[1].arrive(), );
    for (int i = 0; i < 6; ++i) { int k = i & 1;
      auto token = filled[k].arrive();
      if (BUG == 7) ready[k].arrive();
      B(8, filled[k].wait(std::move(token)), if (c < 63) filled[k].wait(std::move(token)));
      v += s[k][c] * (i + 1);
      if (BUG != 7 && i < E(9, 5, 4)) ready[k].arrive(); }
    y[blockIdx.x * 64 + c] = v;
  }
}
