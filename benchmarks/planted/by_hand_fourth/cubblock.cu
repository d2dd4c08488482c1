#include <cub/block/block_exchange.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include "../by_hand/common.cuh"
//@ grid=[2,1,1];block=[64,1,1]
//@ x s32 2,64,4 arange
//@ y s32 2,256 zeros
//@ most s32 2 zeros
//@? y = x.reshape(2,4,64).transpose(0,2,1).reshape(2,256).cumsum(1)
//@? most = x.reshape(2,-1).max(1)
// CUB's exchange from striped to blocked, scan and reduction over one piece of temporary storage
K cubblock(const int* x, int* y, int* most) {
  typedef cub::BlockExchange<int, 64, 4> Exchange; typedef cub::BlockScan<int, 64> Scan; typedef cub::BlockReduce<int, 64> Reduce;
  __shared__ union { typename Exchange::TempStorage e; typename Scan::TempStorage s; typename Reduce::TempStorage r; } temp; __shared__ int top;
  int t = threadIdx.x, v[4], b = blockIdx.x * 256;
  for (int i = 0; i < 4; ++i) v[i] = x[b + i * 64 + t];
  Exchange(temp.e).BlockedToStriped(v, v);
  B(1, __syncthreads(), );
  Exchange(temp.e).StripedToBlocked(v, v);
  B(2, __syncthreads(), );
  int w[4]; for (int i = 0; i < 4; ++i) w[i] = v[i];
  Scan(temp.s).InclusiveSum(v, v);
  B(3, __syncthreads(), );
  int m = Reduce(temp.r).Reduce(max(max(w[0], w[1]), max(w[2], w[3])), [](int a, int b) { return a > b ? a : b; });
  if (t == E(4, 0, 1)) top = m;
  B(5, __syncthreads(), );
  for (int i = 0; i < 4; ++i) y[b + t * 4 + i] = v[i];
  if (t == 40) most[blockIdx.x] = top;
}
