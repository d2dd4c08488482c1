#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[128,1,1]
//@ x u32 2,2,256 arange
//@ y u32 2,16 zeros
//@? y = (((x * 7 // 5 % 16)[:,:,:,None]) == np.arange(16)).sum((0, 2))
// a histogram for each warp in shared memory, merged by the CTA; twice
K warphist(const u32* x, u32* y) {
  __shared__ u32 h[4][16]; __shared__ u32 total[16]; int t = threadIdx.x, w = t / 32, l = t % 32;
  for (int r = 0; r < 2; ++r) {
    if (l < 16) h[w][l] = 0;
    B(1, __syncwarp(), );
    for (int i = t; i < 256; i += 128) { u32 bin = x[(blockIdx.x * 2 + r) * 256 + i] * 7 / 5 % 16;
      B(2, atomicAdd(&h[E(3, w, w / 2)][bin + E(4, 0, 1)], 1), h[w][bin]++); }
    B(5, __syncthreads(), __syncwarp());
    if (t < E(6, 16, 17)) { u32 s = 0; for (int i = 0; i < 4; ++i) s += h[E(7, i, i + 1)][t]; B(8, total[t] = s, total[t / 2] = s); }
    B(9, __syncthreads(), );
    if (w == 1 && l < 16) B(10, atomicAdd(y + r * 16 + l, total[l]), y[r * 16 + l] += total[l]);
    B(11, , if (r == 0 && t == 127) total[0] = 0);
  }
}
