#include "common.cuh"
//@ grid=[1,1,1];block=[128,1,1]
//@ a bf16 64,64 normal
//@ b bf16 32,64 normal box=64,32 swizzle=128B
//@ c f32 64,32 zeros
//@? c = np.maximum(a,0) @ b.T ;2e-2
// wgmma with A from registers (relu on the way), B by TMA
struct alignas(64) Map { char x[128]; };
K __launch_bounds__(128) wgrs2(const bf* a, const __grid_constant__ Map b, float* c) {
  __shared__ alignas(1024) bf sb[32 * 64]; __shared__ u64 bar; int t = threadIdx.x, w = t / 32, l = t % 32;
  if (t == 0) { mb_init(&bar, 1); mb_fence(); }
  __syncthreads();
  if (t == 0) { mb_expect(&bar, 4096); tma2(sb, &b, 0, 0, &bar); }
  u32 ra[4][4]; int r = w * 16 + l / 4, q = (l % 4) * 2;
  auto relu2 = [&](int row, int col) { return pack(fmaxf(__bfloat162float(a[row * 64 + col]), 0.f), fmaxf(__bfloat162float(a[row * 64 + col + 1]), 0.f)); };
  for (int k = 0; k < 4; ++k) { ra[k][0] = relu2(r, k * 16 + q); ra[k][1] = relu2(E(1, r + 8, r), k * 16 + q); ra[k][2] = relu2(r, k * 16 + q + 8); ra[k][3] = relu2(r + 8, k * 16 + q + 8); }
  B(2, mb_wait(&bar, 0), if (l == 0) mb_wait(&bar, 0));
  float d[16] = {};
  for (int i = 0; i < 16; ++i) asm volatile("" : "+f"(d[i]) :: "memory");
  for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(ra[i / 4][i % 4]) :: "memory");
  B(3, wg_fence(), );
  for (int k = 0; k < 4; ++k) { wg_n32_rs(d, ra[k], desc128(sb) + E(4, k * 2, k * 4), k > 0);
    if (BUG == 5 && k == 1) asm volatile("mov.b32 %0, 0;" : "=r"(ra[3][0])); 
    if (BUG == 6 && k == 3) { asm volatile("add.u32 %0, %0, 0;" : "+r"(ra[3][1])); } }
  B(7, wg_commit(), );
  B(8, wg_wait<0>(), wg_wait<1>());
  for (int j = 0; j < 4; ++j) for (int i = 0; i < 4; ++i) c[(r + (i / 2) * 8) * 32 + j * 8 + q + (i & 1)] = d[j * 4 + i];
}
