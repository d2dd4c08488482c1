#include "common.cuh"
//arch sm_80
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 2,4,16,16 normal
//@ y f32 2,4,16,16 zeros
//@? y = x.transpose(0,1,3,2) ;1e-6
// each half-warp group of 16 x 4... two warps transposing two tiles each, own buffer per warp
K transpose(const float* x, float* y) {
  __shared__ float s[2][16][17]; int t = threadIdx.x, w = t / 32, l = t % 32;
  for (int i = 0; i < 2; ++i) { int tile = blockIdx.x * 4 + w * 2 + i;
    for (int j = 0; j < 8; ++j) s[E(1, w, 0)][j * 2 + l / 16][l % 16] = x[tile * 256 + j * 32 + l];
    B(2, __syncwarp(), );
    for (int j = 0; j < 8; ++j) y[tile * 256 + j * 32 + l] = s[w][E(3, l % 16, (l + 1) % 16)][j * 2 + l / 16];
    B(4, __syncwarp(), );
    if (BUG == 5 && i == 0) s[w][15][16 + l % 2] = 1;
  }
}
