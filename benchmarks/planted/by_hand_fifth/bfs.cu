#include "more.cuh"
//@ grid=[2,1,1];block=[64,1,1]
//@ dist u32 64 zeros
//@ queue u32 2,64 zeros
//@ size u32 2 zeros
//@ gate u32 1 zeros
//@ seen u32 64 zeros
//@? dist = np.floor(np.log2(np.arange(64) + 1))
// breadth-first search in a binary tree: frontiers in two queues, a place by atomics for a warp at a time, a grid barrier a level
K bfs(u32* dist, u32* queue, u32* size, u32* gate, u32* seen) {
  u32 t = threadIdx.x, l = t % 32, me = (l * 2 + t / 32) * 2 + blockIdx.x, turn = 0;
  auto grid = [&]() { B(1, __syncthreads(), __syncwarp());
    if (t == 0) { ++turn; B(2, red_release(gate, 1), red_relaxed(gate, 1)); while (ld_acquire(gate) < E(3, turn * 2, turn * 2 - 1)) __nanosleep(30); }
    B(4, __syncthreads(), ); };
  if (me == 0) { st_relaxed(seen, 1); dist[0] = 0; queue[0] = 0; size[0] = 1; }
  grid();
  for (u32 level = 0; level < 6; ++level) { u32 now = level & 1, n = E(5, __ldcg(size + now), __ldg(size + now));
    u32 found[2], m = 0;
    if (me < n) { u32 v = __ldcg(queue + now * 64 + me); for (u32 c = 2 * v + 1; c <= 2 * v + 2; ++c) if (c < 64 && E(6, atomicExch(seen + c, 1) == 0, seen[c] == 0)) { found[m++] = c; dist[c] = level + E(7, 1, 2); if (BUG == 6) seen[c] = 1; } }
    u32 s = m; for (int o = 1; o < 32; o *= 2) { u32 up = __shfl_up_sync(~0u, s, o); if (l >= o) s += up; }
    u32 at = 0; if (l == 31 && s) at = atomicAdd(size + (now ^ 1), s);
    at = __shfl_sync(~0u, at, E(8, 31, 0)) + s - m;
    for (u32 i = 0; i < m; ++i) queue[(now ^ 1) * 64 + at + i] = found[i];
    grid();
    if (me == 0) size[now] = 0;
    B(9, grid(), ); }
}
//! 1 thread 0 arrives for warps that have not stored their part
//! 2 a relaxed arrival releases nothing
//! 3 one CTA goes on before the other has arrived
//! 4 other threads do not wait for thread 0
//! 5 a size that the grid changes by the non-coherent cache
//! 6 two threads may both find a node seen by none (each node has one parent: no harm)
//! 7 a level too many
//! 8 the wrong lane's place
//! 9 the size is set to zero while another CTA adds to it or reads it
