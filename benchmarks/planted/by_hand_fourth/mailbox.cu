#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[64,1,1]
//@ x s32 2,64 arange
//@ y s32 2,64 zeros
//@ box s32 2,64 zeros
//@ sent u32 2 zeros
//@ taken u32 2 zeros
//@? y = (x[::-1] + 10) * 2
// two CTAs exchange rows through one mailbox each, five times; volatile counters and __threadfence
K mailbox(const int* x, int* y, int* box, u32* sent, u32* taken) {
  int t = threadIdx.x, me = blockIdx.x, other = 1 - me; volatile u32 *vs = sent, *vt = taken;
  int v = x[me * 64 + t], total = 0;
  for (u32 r = 1; r <= 5; ++r) {
    if (t == 0) { B(1, while (vt[me] != r - 1), ) ; B(13, __threadfence(), ); }
    B(2, __syncthreads(), );
    if (BUG == 3 && t == 0) vs[me] = r;
    box[me * 64 + t] = v + r;
    B(4, __threadfence(), );
    B(5, __syncthreads(), __syncwarp());
    if (t == 0 && BUG != 3) { B(6, __threadfence(), ); vs[me] = r; }
    if (t == 0) { B(7, while (vs[other] < r), ) ; B(8, __threadfence(), ); }
    B(9, __syncthreads(), __syncwarp());
    if (r > 3) total += ((volatile int*)box)[other * 64 + t] + E(10, (r == 4 ? 6 : 5), 5);
    B(11, __syncthreads(), __syncwarp());
    if (t == 0) { B(12, __threadfence(), ); vt[other] = r; }
  }
  y[me * 64 + t] = total;
}
