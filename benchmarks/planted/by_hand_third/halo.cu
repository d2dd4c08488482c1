#include "../by_hand/common.cuh"
//@ grid=[8,1,1];block=[64,1,1];cluster=[4,1,1]
//@ x f32 2,256 normal
//@ y f32 2,256 zeros
//@? y = (np.roll(x, 1, 1) + np.roll(x, -1, 1)) * .25 + x * .375 + (np.roll(x, 2, 1) + np.roll(x, -2, 1)) * .0625 ;1e-4
// two smoothing steps over a ring of four CTAs, which read each other's edges; the cluster barrier is split
D float remote(const float* p, u32 r) { float v; asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(mapa(sa(p), r)) : M); return v; }
K __cluster_dims__(4, 1, 1) halo(const float* x, float* y) {
  __shared__ float s[2][64]; int t = threadIdx.x; u32 r = rank(); float* out = y + blockIdx.x * 64;
  float w = x[blockIdx.x * 64 + t], first = w; s[0][t] = w;
  if (BUG == 1) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: M); else B(2, cl_arrive(), __syncthreads());
  B(2, cl_wait(), );
  float a = t ? s[0][t - 1] : remote(&s[0][63], (r + E(3, 3, 1)) % 4), b = t < 63 ? s[0][t + 1] : remote(&s[0][E(4, 0, 1)], (r + 1) % 4);
  w = a * .25f + w * .5f + b * .25f;
  s[E(5, 1, 0)][t] = (a + b) * .25f;
  if (BUG != 6) { cl_arrive(); cl_wait(); } else { cl_arrive(); }
  float c = t ? s[1][t - 1] : remote(&s[1][63], (r + 3) % 4), d = t < 63 ? s[1][t + 1] : remote(&s[1][0], (r + 1) % 4);
  if (BUG == 6) cl_wait();
  cl_arrive();
  out[t] = w + (c + d) * .25f - first * .25f;
  B(7, cl_wait(), );
}
