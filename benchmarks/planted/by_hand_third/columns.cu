#include "../by_hand/common.cuh"
//@ grid=[3,1,1];block=[64,1,1];calls=2
//@ x f32 6,32 normal
//@ part f32 3,32 zeros
//@ y f32 32 zeros
//@ count u32 1 zeros
//@? y = x.sum(0) ;1e-5
//@? count = np.zeros(1)
// column sums: the last CTA adds the parts of all, then sets the counter back
D u32 arrive(u32* p) { u32 k;
  if (BUG == 1) asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(k) : "l"(p) : M);
  else if (BUG == 2) asm volatile("atom.acq_rel.cta.global.add.u32 %0, [%1], 1;" : "=r"(k) : "l"(p) : M);
  else if (BUG == 3) asm volatile("atom.release.gpu.global.add.u32 %0, [%1], 1;" : "=r"(k) : "l"(p) : M);
  else if (BUG == 4) asm volatile("atom.acquire.gpu.global.add.u32 %0, [%1], 1;" : "=r"(k) : "l"(p) : M);
  else asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(k) : "l"(p) : M);
  return k; }
K columns(const float* x, float* part, float* y, u32* count) {
  __shared__ float half[32]; __shared__ u32 ticket; int t = threadIdx.x, c = t % 32, b = blockIdx.x;
  float v = x[(b * 2 + t / 32) * 32 + c];
  if (t >= 32) half[c] = v;
  B(5, __syncthreads(), );
  if (t < 32) part[b * 32 + c] = v + half[E(6, c, c + 1)];
  B(7, __syncthreads(), );
  if (t == 0) ticket = arrive(count);
  B(8, __syncthreads(), __syncwarp());
  if (ticket != E(9, 2, 1)) return;
  if (t < 32) { float s = 0; for (int i = 0; i < E(10, 3, 4); ++i) s += part[i * 32 + c]; y[c] = s; }
  B(11, if (t == 0) *count = 0, );
}
