#include "../by_hand/common.cuh"
//arch sm_80
//@ grid=[2,1,1];block=[128,1,1]
//@ x s32 2,128 arange
//@ y s32 2,128 zeros
//@? y = np.cumsum(x, 1)
// Hillis and Steele's scan over two buffers
K scan(const int* x, int* y) {
  __shared__ int s[2][128]; int t = threadIdx.x, in = 0;
  s[0][t] = x[blockIdx.x * 128 + t];
  B(1, __syncthreads(), );
  for (int o = 1; o < E(2, 128, 64); o <<= 1) {
    int v = s[in][t]; if (t >= o) v += s[in][E(3, t - o, t - o + (o == 64))];
    s[in ^ E(4, 1, 0)][t] = v;
    in ^= E(4, 1, 0);
    B(5, __syncthreads(), if (o < 32) __syncwarp(); else __syncthreads());
  }
  y[blockIdx.x * 128 + t] = s[in][t];
}
