#include "more.cuh"
//@ grid=[4,1,1];block=[32,1,1]
//@ x u32 2,12 arange
//@ tail u32 1 zeros
//@ head u32 1 zeros
//@ seq u32 4 arange
//@ cell u32 4,2 zeros
//@ seen u32 24 zeros
//@? seen = x.reshape(-1) * 3 + 1
// Vyukov's bounded queue: two CTAs put, two take; each cell has a sequence number
K mpmc(const u32* x, u32* tail, u32* head, u32* seq, u32* cell, u32* seen) {
  if (threadIdx.x) return;
  for (int n = 0; n < 12; ++n) {
    if (blockIdx.x < 2) { u32 v = x[blockIdx.x * 12 + n], at = ld_relaxed(tail);
      for (;;) { u32 s = E(1, ld_acquire(seq + at % 4), ld_relaxed(seq + at % 4)); int d = (int)(s - at);
        if (d == 0 || (BUG == 2 && d < 0 && n > 3)) { u32 was = E(3, atomicCAS(tail, at, at + 1), (st_relaxed(tail, at + 1), at)); if (was == at) break; at = was; }
        else at = ld_relaxed(tail); }
      if (BUG == 4) st_release(seq + at % 4, at + 1);
      cell[at % 4 * 2] = v; cell[at % 4 * 2 + 1] = v * 2 + 1;
      if (BUG != 4) B(5, st_release(seq + at % 4, at + 1), st_relaxed(seq + at % 4, at + 1));
    } else { u32 at = ld_relaxed(head);
      for (;;) { u32 s = E(6, ld_acquire(seq + at % 4), ld_relaxed(seq + at % 4)); int d = (int)(s - (at + 1));
        if (d == 0) { u32 was = atomicCAS(head, at, at + 1); if (was == at) break; at = was; } else at = ld_relaxed(head); }
      if (BUG == 7) st_release(seq + at % 4, at + 4);
      u32 v = cell[at % 4 * 2], q = cell[at % 4 * 2 + 1];
      if (BUG != 7) B(8, st_release(seq + at % 4, at + 4), st_release(seq + at % 4, at + 5));
      seen[v] = v + q; }
  }
}
//! 1 the cell is written over without acquiring the reads of its taker
//! 2 a full cell is overwritten
//! 3 two CTAs may take one place
//! 4 the cell is announced before it is written
//! 5 a relaxed store releases nothing
//! 6 the cell is read without acquiring the writes
//! 7 the cell is given back before it is read
//! 8 the wrong number: the cell is never free
