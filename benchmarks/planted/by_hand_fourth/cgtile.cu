#include "../by_hand/common.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
//@ grid=[2,1,1];block=[128,1,1]
//@ x s32 2,4,128 arange
//@ y s32 2,128 zeros
//@? y = (x.reshape(2,4,8,16).cumsum(3).sum(1) + x.reshape(2,4,128)[:, :, ::-1].sum(1).reshape(2,8,16)).reshape(2,128)
// rows copied by the whole CTA, two in flight; scans by groups of 16; each thread also reads the mirrored element
K cgtile(const int* x, int* y) {
  __shared__ alignas(16) int buf[2][128]; auto cta = cg::this_thread_block(); auto tile = cg::tiled_partition<16>(cta);
  int t = threadIdx.x, sum = 0; const int* src = x + blockIdx.x * 512;
  cg::memcpy_async(cta, buf[0], src, sizeof(int) * E(1, 128, 124));
  for (int i = 0; i < 4; ++i) {
    if (i < 3) { cg::memcpy_async(cta, buf[E(2, (i + 1) % 2, i % 2)], src + (i + 1) * 128, sizeof(int) * 128); B(3, cg::wait_prior<1>(cta), cg::wait_prior<2>(cta)); }
    else B(4, cg::wait(cta), );
    int v = buf[i % 2][t];
    sum += cg::inclusive_scan(tile, v) + buf[i % 2][E(5, 127, 128) - t];
    B(6, cta.sync(), tile.sync());
  }
  y[blockIdx.x * 128 + t] = sum;
}
