#include "more.cuh"
//@ grid=[4,1,1];block=[32,1,1]
//@ x u32 4,32 arange
//@ lock u32 2 zeros
//@ data u32 4 zeros
//@? data = np.array([x.sum(), 4 * 31, 4, x.sum() + 4])
//@? lock = np.array([4, 4])
// a ticket lock with back-off around several words, of which one is computed from others
K ticket(const u32* x, u32* lock, u32* data) {
  u32 t = threadIdx.x, v = __reduce_add_sync(~0u, x[blockIdx.x * 32 + t]);
  if (t == 0) {
    u32 mine;
    B(2, mine = atomicAdd(lock, 1), mine = ld_relaxed(lock); st_relaxed(lock, mine + 1));
    if (BUG == 3) { if (ld_acquire(lock + 1) != mine) __nanosleep(100); } else if (BUG == 4) { while (ld_relaxed(lock + 1) != mine) __nanosleep(40); }
    else B(5, while (ld_acquire(lock + 1) != mine) __nanosleep(40), while (ld_acquire(lock + 1) + 1 < mine) __nanosleep(40));
    data[0] += v; data[1] += 31; data[2] += 1;
    if (BUG == 6) st_release(lock + 1, mine + 1);
    data[3] = data[0] + data[2];
    if (BUG != 6) B(7, st_release(lock + 1, mine + 1), st_relaxed(lock + 1, mine + 1));
  }
  if (BUG == 8 && t == 5) data[2] += v == 77;
}
//! 2 two CTAs may draw one ticket
//! 3 the lock is asked once
//! 4 relaxed polls acquire nothing
//! 5 two CTAs are in the section
//! 6 the lock is released before the last store
//! 7 a relaxed store releases nothing
//! 8 an access outside of the lock
