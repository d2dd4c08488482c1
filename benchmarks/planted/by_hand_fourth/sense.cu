#include "../by_hand/common.cuh"
//@ grid=[3,1,1];block=[64,1,1]
//@ x s32 3,64 arange
//@ y s32 3,64 zeros
//@ buf s32 2,3,64 zeros
//@ count u32 1 zeros
//@ gen u32 1 zeros
//@? y = x + x[[1,2,0]] + (x + x[[1,2,0]])[[1,2,0]]
// two steps between neighbours over a grid barrier with a generation
D void grid_sync(u32* count, u32* gen) {
  B(1, __syncthreads(), __syncwarp());
  if (threadIdx.x == 0) {
    u32 g = *(volatile u32*)gen;
    B(2, __threadfence(), );
    if (atomicAdd(count, 1) == E(3, 2, 1)) { B(4, *(volatile u32*)count = 0, ); B(5, __threadfence(), ); *(volatile u32*)gen = g + 1; }
    else B(6, while (*(volatile u32*)gen == g), ) ;
    B(7, __threadfence(), );
  }
  B(8, __syncthreads(), __syncwarp());
}
K sense(const int* x, int* y, int* buf, u32* count, u32* gen) {
  int t = threadIdx.x, c = blockIdx.x, n = (c + 1) % 3;
  buf[c * 64 + t] = x[c * 64 + t];
  grid_sync(count, gen);
  int v = __ldcg(buf + c * 64 + t) + __ldcg(buf + n * 64 + t);
  buf[E(9, 192, 0) + c * 64 + t] = v;
  B(10, grid_sync(count, gen), );
  y[c * 64 + t] = __ldcg(buf + E(9, 192, 0) + c * 64 + t) + __ldcg(buf + E(9, 192, 0) + n * 64 + t);
}
