#include "more.cuh"
//@ grid=[2,1,1];block=[96,1,1]
//@ y f32 2,96 zeros
//@ steps u32 2 zeros
//@? y = np.broadcast_to(np.minimum(np.arange(96), 8), (2, 96))
//@? steps = np.full(2, 9)
// relaxation until nothing changes, by __syncthreads_or; reads the left neighbour
K jacobi(float* y, u32* steps) {
  __shared__ float s[2][97]; int t = threadIdx.x; u32 n = 0;
  s[0][t + 1] = 0; B(1, if (t == 0) s[0][0] = s[1][0] = -1, if (t == 0) s[0][0] = -1);
  B(2, __syncthreads(), );
  for (int now = 0;; now ^= 1) {
    float v = fminf(fmaxf(s[now][t] + 1, s[now][t + 1]), fminf(t, 8)); bool moved = v != s[now][t + 1];
    s[E(3, now ^ 1, now)][t + 1] = v; ++n;
    if (BUG == 4) { if (!__any_sync(~0u, moved)) break; } else if (BUG == 5) { if (!moved) break; __syncthreads(); if (n > 20) break; }
    else if (BUG == 6) { if (!__syncthreads_and(moved)) break; } else if (!__syncthreads_or(moved)) break;
    if (BUG == 7 && t == 40) s[now][t + 1] = 0; }
  y[blockIdx.x * 96 + t] = s[0][t + 1]; if (t == 0) steps[blockIdx.x] = n;
}
//! 1 the second buffer's edge is not written
//! 2 neighbours read before the start values are stored
//! 3 in place: a neighbour reads while this thread writes
//! 4 a warp leaves on its own, and does not wait for others
//! 5 threads leave one by one, and the others' barriers do not order them
//! 6 the loop ends when one thread stands still
//! 7 a write after the barrier: in the buffer that the next step writes and nobody reads (same thread; no harm)
