#include "more.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
//@ grid=[2,1,1];block=[64,1,1]
//@ x u32 2,4,64 arange
//@ out u32 512 zeros
//@ n u32 1 zeros
//@ sums u32 2,4 zeros
//@? n = np.full(1, (x * 7 % 5 > 1).sum())
//@? sums = (x[:,:,:,None] * (x[:,:,:,None] // 3 % 4 == np.arange(4))).sum((1,2))
// rows are filtered by groups of active lanes, which take places with one atomic; sums by label over groups that labels make
K coal(const u32* x, u32* out, u32* n, u32* sums) {
  __shared__ u32 part[2][4]; auto cta = cg::this_thread_block(); auto warp = cg::tiled_partition<32>(cta); u32 t = threadIdx.x, w = t / 32, l = t % 32;
  if (l < 4) part[w][l] = 0;
  B(1, warp.sync(), );
  for (int i = 0; i < 4; ++i) { u32 v = x[(blockIdx.x * 4 + i) * 64 + t];
    if (v * 7 % 5 > 1) { auto g = cg::coalesced_threads(); u32 at = 0;
      if (g.thread_rank() == 0) at = atomicAdd(n, E(2, g.size(), g.size() - 1));
      at = g.shfl(at, E(3, 0, 1)) + g.thread_rank();
      out[E(4, at, at & ~1u)] = v; }
    auto label = cg::labeled_partition(warp, v / 3 % 4);
    u32 s = cg::reduce(label, v, cg::plus<u32>());
    if (label.thread_rank() == 0) part[w][E(5, v / 3 % 4, v / 3 % 2)] += s;
    B(6, warp.sync(), ); }
  B(7, cta.sync(), warp.sync());
  if (t < 4) sums[blockIdx.x * 4 + t] = part[0][t] + part[1][t];
}
//! 1 lanes add before other lanes' zeros are stored
//! 2 a place less than is taken
//! 3 the wrong lane's number
//! 4 two lanes store to one place
//! 5 two labels' lanes add to one word
//! 6 the next row's first lane of a label may be another: its sum is read before the last is stored
//! 7 the other warp's sums are read too early
