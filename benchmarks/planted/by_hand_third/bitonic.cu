#include "../by_hand/common.cuh"
//arch sm_80
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 2,128 normal
//@ y f32 2,128 zeros
//@? y = np.sort(x, 1)
// bitonic sort: steps within 64 elements need the warp only, wider ones the CTA
K bitonic(const float* x, float* y) {
  __shared__ float s[128]; int t = threadIdx.x;
  s[t] = x[blockIdx.x * 128 + t]; s[t + 64] = x[blockIdx.x * 128 + t + 64];
  B(1, __syncthreads(), __syncwarp());
  for (int k = 2; k <= 128; k *= 2)
    for (int j = k / 2; j; j /= 2) {
      int lo = 2 * j * (t / j) + t % j, hi = lo + j; bool up = (lo & k) == 0;
      float a = s[lo], b = s[E(2, hi, hi + 1)];
      if ((a > b) == up) { s[lo] = b; s[hi] = a; }
      if (j == 64 || (j == 1 && k == 64)) B(3, __syncthreads(), __syncwarp());
      else if (j == 1) B(4, __syncthreads(), if (k != 32) __syncthreads());
      else if (j == 2) B(5, __syncwarp(), );
      else if (j == 32) B(6, __syncwarp(), );
      else B(7, __syncwarp(), if (t < 32) __syncwarp());
    }
  y[blockIdx.x * 128 + t] = s[t]; y[blockIdx.x * 128 + t + 64] = s[t + E(8, 64, 65)];
}
