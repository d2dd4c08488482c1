#include "common.cuh"
//@ grid=[2,1,1];block=[64,1,1];dependent=["x","w"]
//@ x f32 128 normal
//@ y f32 128 zeros
//@ w f32 64 normal
//@? y = x * np.concatenate([w,w]) ;1e-5
K depl(const float* x, float* y, const float* __restrict__ w) {
  __shared__ float sw[64]; int t = threadIdx.x;
  if (BUG == 1) sw[t] = w[t];
  if (BUG == 2) y[blockIdx.x * 64 + t] = 0;
  if (BUG == 4) { if (t < 32) asm volatile("griddepcontrol.wait;" ::: M); } else
  B(3, asm volatile("griddepcontrol.wait;" ::: M), );
  if (BUG != 1) sw[t ^ 32] = w[t ^ 32];
  B(5, __syncthreads(), );
  asm volatile("griddepcontrol.launch_dependents;" ::: M);
  y[blockIdx.x * 64 + t] = x[blockIdx.x * 64 + t] * sw[t] ;
}
