#include "more.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
//@ grid=[4,1,1];block=[64,1,1];cluster=[4,1,1]
//@ x f32 3,4,128 normal
//@ y f32 3,4,128 zeros
//@? y = ((x.reshape(3,512) - x.reshape(3,512).mean(1)[:,None]) / np.sqrt(x.reshape(3,512).var(1)[:,None] + 1e-5)).reshape(3,4,128) ;1e-4
// layer norm of rows over a cluster: each CTA reads the others' sums; slots alternate between rows, so one barrier a sum is enough
K __cluster_dims__(4, 1, 1) clnorm(const float* x, float* y) {
  __shared__ float part[2][2]; __shared__ float slot[2][2];
  auto cl = cg::this_cluster(); auto cta = cg::this_thread_block(); auto warp = cg::tiled_partition<32>(cta);
  int t = threadIdx.x, r = cl.block_rank();
  auto total = [&](float v, int n, int which) {
    v = cg::reduce(warp, v, cg::plus<float>());
    if (warp.thread_rank() == 0) part[which][t / 32] = v;
    B(2, cta.sync(), );
    if (t == 0) slot[n & 1][E(4, which, 0)] = part[which][0] + part[which][1];
    if (BUG == 1) cl.barrier_arrive(); else B(5, cl.sync(), cta.sync());
    float s = 0;
    for (int i = 0; i < 4; ++i) s += cl.map_shared_rank(&slot[0][0], E(6, i, r))[(n & 1) * 2 + E(4, which, 0)];
    if (BUG == 1) cl.barrier_wait();
    return s; };
  for (int n = 0; n < 3; ++n) { const float* in = x + (n * 4 + r) * 128; float a = in[t], b = in[t + 64];
    float mean = total(a + b, n, 0) / 512; a -= mean; b -= mean;
    float scale = rsqrtf(total(a * a + b * b, n, 1) / 512 + 1e-5f);
    y[(n * 4 + r) * 128 + t] = a * scale; y[(n * 4 + r) * 128 + t + E(7, 64, 63)] = b * scale; }
  B(8, cl.sync(), );
}
//! 1 the cluster barrier is split, and sums are read between arrival and wait
//! 2 thread 0 reads warp 1's sum before it is stored
//! 4 one slot for both sums: thread 0 stores the variance while another CTA still reads the mean
//! 5 other CTAs' sums are read before they are stored
//! 6 own sum four times
//! 7 off by one
//! 8 a CTA exits while others read its shared memory
