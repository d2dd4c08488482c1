#include "common.cuh"
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
//@ grid=[2,1,1];block=[128,1,1]
//@ x f32 2,4,32 normal
//@ y f32 2,32 zeros
//@? y = x.sum(1) ;1e-4
// transposed tile reduction with a padded tile
K cgred(const float* x, float* y) {
  __shared__ float s[4][33]; auto b = cg::this_thread_block(); auto t32 = cg::tiled_partition<32>(b); auto t4 = cg::tiled_partition<4>(b);
  int w = t32.meta_group_rank(), l = t32.thread_rank();
  s[w][l] = x[blockIdx.x * 128 + w * 32 + l];
  B(1, b.sync(), t32.sync());
  int col = t4.meta_group_rank(); float v = s[t4.thread_rank()][E(2, col, col + 1)];
  B(3, v = cg::reduce(t4, v, cg::plus<float>()), v += t4.shfl_xor(v, 2));
  if (BUG == 4) { s[0][col] = v; v = s[0][threadIdx.x % 32]; if (threadIdx.x < 32) y[blockIdx.x * 32 + threadIdx.x] = v; }
  else if (BUG == 5) { b.sync(); if (t4.thread_rank() == 0) s[0][col] = v; t32.sync(); if (threadIdx.x < 32) y[blockIdx.x * 32 + threadIdx.x] = s[0][threadIdx.x]; }
  else { b.sync(); if (t4.thread_rank() == 0) s[0][col] = v; b.sync(); if (threadIdx.x < 32) y[blockIdx.x * 32 + threadIdx.x] = s[0][threadIdx.x]; }
}
