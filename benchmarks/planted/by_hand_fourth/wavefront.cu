#include "../by_hand/common.cuh"
//@ grid=[3,1,1];block=[32,1,1]
//@ x s32 3,4,32 arange
//@ y s32 3,4,32 zeros
//@ done u32 3 zeros
//@? y = x.cumsum(0).cumsum(1)
// rows of tiles: a CTA for each row; a tile needs the one above, whose CTA counts its finished tiles
D u32 ld(const u32* p) { u32 v; if (BUG == 1) asm volatile("ld.relaxed.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : M); else asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(v) : "l"(p) : M); return v; }
K wavefront(const int* x, int* y, u32* done) {
  int t = threadIdx.x, i = blockIdx.x, left = 0;
  for (int j = 0; j < 4; ++j) {
    int v = x[(i * 4 + j) * 32 + t], above = 0, corner = 0;
    if (i) {
      if (t == 0) while (ld(done + i - 1) < E(2, j + 1, j)) ;
      B(3, __syncwarp(), );
      above = *(volatile int*)(y + ((i - 1) * 4 + j) * 32 + t);
      if (j) corner = *(volatile int*)(y + ((i - 1) * 4 + j - 1) * 32 + t); }
    left = v + above + left - corner;
    B(4, , if (t == 0) asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(done + i), "r"(j + 1) : M));
    y[(i * 4 + j) * 32 + t] = left;
    B(5, __syncwarp(), );
    if (t == 0 && BUG != 4) {
      if (BUG == 6) asm volatile("st.relaxed.gpu.u32 [%0], %1;" :: "l"(done + i), "r"(j + 1) : M);
      else if (BUG == 7) asm volatile("st.release.cta.u32 [%0], %1;" :: "l"(done + i), "r"(j + 1) : M);
      else asm volatile("st.release.gpu.u32 [%0], %1;" :: "l"(done + i), "r"(j + E(8, 1, (i == 1 ? 0 : 1))) : M); }
  }
}
