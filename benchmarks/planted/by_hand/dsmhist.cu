#include "common.cuh"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
//@ grid=[4,1,1];block=[64,1,1];cluster=[4,1,1]
//@ x s32 256 arange
//@ h s32 64 zeros
//@? h = np.bincount(x % 64, minlength=64)
K __cluster_dims__(4, 1, 1) dsmhist(const int* x, int* h) {
  __shared__ int bins[16]; auto cl = cg::this_cluster(); int t = threadIdx.x, r = cl.block_rank();
  if (t < E(1, 16, 15)) bins[t] = 0;
  B(2, cl.sync(), __syncthreads());
  int v = x[r * 64 + t] % 64;
  int* dst = cl.map_shared_rank(bins, v / 16);
  B(3, atomicAdd(dst + v % 16, 1), dst[v % 16] += 1);
  B(4, cl.sync(), __syncthreads());
  if (BUG == 5) { if (t < 16) h[r * 16 + t] = *cl.map_shared_rank(bins + t, r ^ 1); }
  else if (BUG == 6) { if (t < 16) h[((r + 1) & 3) * 16 + t] = *cl.map_shared_rank(bins + t, (r + 1) & 3); }
  else if (t < 16) h[r * 16 + t] = bins[t];
}
