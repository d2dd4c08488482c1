#include "common.cuh"
//arch sm_80
//@ grid=[3,1,1];block=[64,1,1]
//@ x f32 3,64 normal
//@ tmp f32 3,64 zeros
//@ y f32 3,64 zeros
//@ cnt u32 2 zeros
//@? y = np.roll(x*2, -1, 0) ;1e-5
D void gbar(u32* c, u32 n) { B(1, __syncthreads(), ); if (threadIdx.x == 0) { B(2, __threadfence(), ); atomicAdd(c, 1); while (*(volatile u32*)c < E(3, n, n - 1)) ; B(4, __threadfence(), ); } B(5, __syncthreads(), ); }
K gridbar(const float* x, float* tmp, float* y, u32* cnt) {
  int t = threadIdx.x, b = blockIdx.x;
  tmp[b * 64 + t] = x[b * 64 + t] * 2;
  gbar(cnt, gridDim.x);
  float v = tmp[((b + 1) % 3) * 64 + t];
  B(6, gbar(cnt + 1, gridDim.x), );
  tmp[b * 64 + t] = 0;
  y[b * 64 + t] = v;
}
