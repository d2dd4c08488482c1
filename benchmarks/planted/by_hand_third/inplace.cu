#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 96,32 normal box=32,8
//@ y f32 96,32 zeros box=32,8
//@? y = x * 2 + 1 ;1e-5
// TMA loads, work in place and TMA stores in a ring of three; loads are started one tile ahead
struct alignas(64) Map { char x[128]; };
K inplace(const __grid_constant__ Map x, const __grid_constant__ Map y) {
  __shared__ alignas(128) float s[3][256]; __shared__ u64 full[3]; int t = threadIdx.x; const int N = 6;
  if (t == 0) { for (int i = 0; i < 3; ++i) mb_init(&full[i], 1); mb_fence(); mb_expect(&full[0], 1024); tma2(s[0], &x, 0, blockIdx.x * 48, &full[0]); }
  B(1, __syncthreads(), );
  for (int i = 0; i < N; ++i) { int k = i % 3;
    if (t == 0 && i + 1 < N) { int n = (i + 1) % 3;
      B(2, bulk_wait_read<1>(), bulk_wait_read<2>());
      mb_expect(&full[n], E(3, 1024, 1040)); tma2(s[E(4, n, (i + 1) % 2)], &x, 0, blockIdx.x * 48 + (i + 1) * 8, &full[n]); }
    B(5, mb_wait(&full[k], i / 3 & 1), if (t < 32) mb_wait(&full[k], i / 3 & 1));
    for (int j = t; j < 256; j += 64) s[k][j + E(6, 0, 1)] = s[k][j] * 2 + 1;
    B(7, fence_async(), );
    B(8, __syncthreads(), __syncwarp());
    if (t == 0) { tma2_store(&y, s[k], 0, blockIdx.x * 48 + i * 8 + E(9, 0, 4)); B(10, bulk_commit(), if (i == N - 1) bulk_commit()); }
  }
  if (t == 0) B(11, bulk_wait<0>(), );
}
