// What the driver does for a kernel: formatted output, assertions, the barrier of a cooperative grid; and textures.
#include <cassert>
#include <cooperative_groups.h>
#include <cstdio>
namespace cg = cooperative_groups;

extern "C" __global__ void talks(const int* x) {
  long long wide = -5000000000ll;
  if (threadIdx.x < 2) printf("%s %d: %+5d|%-4u|%08.3f|%x|%lld|%c|%%|%.*f\n", "thread", threadIdx.x, x[threadIdx.x], 7u, 2.5, 255, wide, 'k', 1, 0.25);
}

extern "C" __global__ void claims(const int* x) { assert(x[threadIdx.x] > 0); }

extern "C" __global__ void meets(int* x, int* out) {
  auto grid = cg::this_grid();
  int i = int(grid.thread_rank()), n = int(grid.size());
  x[i] = 3 * i;
  grid.sync();
  out[i] = x[n - 1 - i];
  grid.sync();
  x[i] = out[(i + 7) % n];
}

extern "C" __global__ void looks_up(cudaTextureObject_t t, float* out) { out[threadIdx.x] = tex2D<float>(t, threadIdx.x, 0.5f); }
