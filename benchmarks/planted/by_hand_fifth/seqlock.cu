#include "more.cuh"
//@ grid=[3,1,1];block=[32,1,1]
//@ seq u32 1 zeros
//@ pair u32 2 zeros
//@ bad u32 2 zeros
//@ ready u32 1 zeros
//@? bad = np.zeros(2)
//@? pair = np.array([20, 60])
// a sequence lock: one writer, readers that try again; the data are relaxed accesses between fences
K seqlock(u32* seq, u32* pair, u32* bad, u32* ready) {
  if (threadIdx.x) return;
  if (blockIdx.x == 0) { u32 n = 0;
    for (u32 i = 1; i <= 20; ++i) {
      B(1, st_relaxed(seq, ++n), ++n);
      B(2, __threadfence(), );
      st_relaxed(pair, i); st_relaxed(pair + 1, i * 3);
      B(3, st_release(seq, ++n), st_relaxed(seq, ++n)); }
  } else { u32 wrong = 0, last = 0;
    while (last < 20) { u32 s = E(4, ld_acquire(seq), ld_relaxed(seq)); if (s & 1) continue;
      u32 a = E(5, ld_relaxed(pair), pair[0]), b = ld_relaxed(pair + 1);
      B(6, __threadfence(), );
      if (E(7, ld_relaxed(seq) != s, false)) continue;
      wrong += a * 3 != b; last = a; }
    bad[blockIdx.x - 1] = wrong; }
}
//! 1 readers do not see that a write is going on
//! 2 the data may be visible before the odd number
//! 3 the even number may be visible before the data
//! 4 nothing acquires the data
//! 5 a plain load races with the writer
//! 6 the number may be read again before the data are
//! 7 readers take torn pairs
