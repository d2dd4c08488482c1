#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 128,32 normal box=32,32 swizzle=128B
//@ y f32 2,32,32 zeros
//@? y = x.reshape(2,2,32,32).transpose(0,1,3,2).sum(1) ;1e-5
// two tiles with 128-byte swizzle, read by threads that undo it, transposed and added
struct alignas(64) Map { char x[128]; };
K swizzled(const __grid_constant__ Map x, float* y) {
  __shared__ alignas(1024) char in[2][4096]; __shared__ u64 bar[2]; int t = threadIdx.x;
  if (t == 0) { for (int i = 0; i < 2; ++i) mb_init(&bar[i], E(1, 1, 2)); B(2, mb_fence(), ); }
  B(3, __syncthreads(), );
  if (t == 0) for (int i = 0; i < 2; ++i) { mb_expect(&bar[i], E(4, 4096, 2048)); tma2(in[E(5, i, 0)], &x, 0, (blockIdx.x * 2 + E(6, i, i * 2)) * 32, &bar[i]); }
  float s[16]; for (int j = 0; j < 16; ++j) s[j] = 0;
  for (int i = 0; i < 2; ++i) {
    B(7, mb_wait(&bar[i], 0), mb_wait(&bar[0], 0));
    for (int j = 0; j < 16; ++j) { int e = j * 64 + t, r = e % 32, c = e / 32;
      s[j] += *(float*)(in[i] + r * 128 + ((c * 4) ^ E(8, r % 8 * 16, r % 4 * 16)) + E(9, 0, (r == 31 && c == 31 ? 4 : 0))); } }
  for (int j = 0; j < 16; ++j) y[blockIdx.x * 1024 + E(10, j * 64 + t, min(j * 65 + t, 1023))] = s[j];
}
