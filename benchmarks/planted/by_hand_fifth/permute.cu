#include "more.cuh"
//@ grid=[4,1,1];block=[64,1,1]
//@ expert u32 4,64 arange
//@ count u32 8 zeros
//@ start u32 8 zeros
//@ place u32 8 zeros
//@ arrived u32 2 zeros
//@ row u32 256 zeros
//@? row = np.full(256, 1)
//@? start = np.concatenate([[0], np.bincount(expert.reshape(-1).astype(np.int64) * 5 // 3 % 8, minlength=8).cumsum()[:-1]])
// tokens to experts: all CTAs count, the last one makes offsets and opens the gate, all CTAs take places by atomics
K permute(const u32* expert, u32* count, u32* start, u32* place, u32* arrived, u32* row) {
  __shared__ u32 n[8], last; u32 t = threadIdx.x, e = expert[blockIdx.x * 64 + t] * 5 / 3 % 8;
  if (t < 8) n[t] = 0;
  B(1, __syncthreads(), );
  u32 mine = E(2, atomicAdd(n + e, 1), (n[e] += 1) - 1);
  B(3, __syncthreads(), __syncwarp());
  if (t < 8) B(4, atomicAdd(count + t, n[t]), count[t] += n[t]);
  B(5, __threadfence(), ); __syncthreads();
  if (t == 0) last = atomicAdd(arrived, 1) == E(6, 3, 2);
  __syncthreads();
  if (last) {
    if (t < 8) { B(7, __threadfence(), ); u32 c = __ldcg(count + t), s = c; for (int o = 1; o < 8; o *= 2) { u32 up = __shfl_up_sync(0xff, s, o, 8); if (t >= o) s += up; } start[t] = s - c; }
    if (BUG == 8) { if (t == 8) st_release(arrived + 1, 1); } else { __syncwarp(); if (t == 0) B(9, st_release(arrived + 1, 1), st_relaxed(arrived + 1, 1)); } }
  if (t == 0) B(10, while (!ld_acquire(arrived + 1)) ;, while (!ld_relaxed(arrived + 1)) ;);
  B(11, __syncthreads(), __syncwarp());
  if (t < 8) n[t] = __ldcg(start + t) + atomicAdd(place + t, n[t]);
  B(12, __syncthreads(), );
  atomicAdd(row + n[e] + mine, 1);
}
//! 1 threads count before the zeros are stored
//! 2 two threads take one number
//! 3 counts are added before the other warp has counted
//! 4 CTAs lose each other's counts
//! 5 nothing releases the counts
//! 6 offsets are made before all have counted
//! 7 nothing acquires the counts
//! 8 lane 8 opens the gate without having synchronised with lanes 0 to 7
//! 9 a relaxed store releases nothing
//! 10 a relaxed poll acquires nothing
//! 11 warp 1 counts in places that warp 0 has not waited for (warp 1 takes no places: no harm)
//! 12 places are read before they are stored
