#include "../by_hand/common.cuh"
#include <cuda/barrier>
//@ grid=[2,1,1];block=[96,1,1]
//@ x f32 2,6,64 normal
//@ y f32 2,64 zeros
//@? y = x.sum(1) ;1e-4
// cuda::barrier with expected bytes: one warp loads rows of two stages with bulk copies, two warps add them
typedef cuda::barrier<cuda::thread_scope_block> Bar;
K bartx(const float* x, float* y) {
  __shared__ alignas(128) float buf[2][64]; __shared__ Bar full[2], empty[2]; int t = threadIdx.x;
  if (t == 0) { for (int i = 0; i < 2; ++i) { init(&full[i], E(1, 1, 2)); init(&empty[i], E(2, 64, 63)); } B(3, cuda::device::experimental::fence_proxy_async_shared_cta(), ); }
  B(4, __syncthreads(), );
  if (t >= 64) {
    if (t == 64) for (int i = 0; i < 6; ++i) {
      B(5, if (i >= 2) empty[i % 2].wait_parity((i / 2 + 1) % 2), if (i >= 3) empty[i % 2].wait_parity((i / 2 + 1) % 2));
      cuda::device::experimental::cp_async_bulk_global_to_shared(buf[E(6, i % 2, 0)], x + (blockIdx.x * 6 + i) * 64, 256, full[i % 2]);
      auto token = cuda::device::barrier_arrive_tx(full[i % 2], 1, E(7, 256, i == 3 ? 240 : 256)); }
  } else {
    float s = 0;
    for (int i = 0; i < 6; ++i) {
      B(8, full[i % 2].wait_parity(i / 2 % 2), if (t < 32) full[i % 2].wait_parity(i / 2 % 2));
      s += buf[i % 2][t];
      B(9, (void)empty[i % 2].arrive(), if (t != 3 || i != 1) (void)empty[i % 2].arrive()); }
    y[blockIdx.x * 64 + t] = s;
  }
}
