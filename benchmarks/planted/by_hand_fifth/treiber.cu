#include "more.cuh"
//@ grid=[3,1,1];block=[64,1,1]
//@ x u32 2,64 arange
//@ top u32 1 zeros
//@ next u32 129 zeros
//@ value u32 129 zeros
//@ done u32 1 zeros
//@ sum u32 1 zeros
//@? sum = np.full(1, (x * 3 + 1).sum())
// a lock-free stack: two CTAs push a node for each thread; the third takes whole lists until it has all nodes
K treiber(const u32* x, u32* top, u32* next, u32* value, u32* done, u32* sum) {
  int t = threadIdx.x;
  if (blockIdx.x < 2) { u32 me = blockIdx.x * 64 + t + 1, was = ld_relaxed(top);
    if (BUG != 1) value[me] = x[me - 1] * 3 + 1;
    for (;;) { B(2, next[me] = was, if (was == 0) next[me] = was); B(3, __threadfence(), );
      u32 seen = E(4, atomicCAS(top, was, me), atomicExch(top, me)); if (BUG == 4 || seen == was) break; was = seen; }
    if (BUG == 1) value[me] = x[me - 1] * 3 + 1;
  } else if (t == 0) { u32 s = 0, n = 0;
    while (n < 128) { u32 at;
      B(5, at = atomicExch(top, 0), at = ld_relaxed(top); if (at) st_relaxed(top, 0));
      B(6, __threadfence(), );
      for (; at; at = next[at]) { s += value[at]; ++n; } }
    *sum = s; }
}
//! 1 the node is pushed before its value is written
//! 2 the link is stored once only: the list loses nodes
//! 3 nothing releases the node
//! 4 the link may not be the old top
//! 5 nodes pushed between load and store are lost
//! 6 nothing acquires the nodes
