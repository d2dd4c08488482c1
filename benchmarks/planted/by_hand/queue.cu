#include "common.cuh"
//@ grid=[3,1,1];block=[32,1,1]
//@ slots s32 16 zeros
//@ ready u32 16 zeros
//@ head u32 1 zeros
//@ tail u32 1 zeros
//@ out s32 16 zeros
//@? out = np.arange(16)+100
// CTA 0 pushes 16 items; CTAs 1, 2 pop
K queue(int* slots, u32* ready, u32* head, u32* tail, int* out) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) {
    for (int i = 0; i < 16; ++i) { u32 k = atomicAdd(tail, 1); 
      if (BUG == 1) { asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(ready + k) : M); slots[k] = 100 + i; }
      else { slots[k] = 100 + i;
      if (BUG == 2) asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" :: "l"(ready + k) : M);
      else if (BUG == 3) asm volatile("st.release.cta.global.u32 [%0], 1;" :: "l"(ready + k) : M);
      else asm volatile("st.release.gpu.global.u32 [%0], 1;" :: "l"(ready + k) : M); } }
  } else for (;;) {
    u32 k = E(4, atomicAdd(head, 1), (*(volatile u32*)head)++); if (k >= E(5, 16, 17)) break;
    u32 r; do { if (BUG == 6) asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(ready + k) : M); else asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(ready + k) : M); } while (!r);
    out[k] = slots[k];
  }
}
