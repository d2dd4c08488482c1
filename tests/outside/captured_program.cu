// A program for test_captured.py: TMA brings rows to shared memory, threads add one, and the host compares.
// BUG 1 reads before the copy has arrived; BUG 2 adds two, so that only the program itself can tell.

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#ifndef BUG
#define BUG 0
#endif

constexpr int kRows = 8, kColumns = 64, kTiles = 4;

__global__ void fill(float *out, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) out[at] = at;
}

__global__ void add_one(const __grid_constant__ CUtensorMap map, float **where, int *clusters) {
  __shared__ alignas(128) float tile[kRows][kColumns];
  __shared__ alignas(8) uint64_t arrived;
  unsigned barrier = __cvta_generic_to_shared(&arrived), to = __cvta_generic_to_shared(&tile[0][0]);
  if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(barrier));
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "n"(sizeof tile) : "memory");
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(0), "r"(int(blockIdx.x) * kRows), "r"(barrier) : "memory");
  }
  __syncthreads();
#if BUG != 1
  asm volatile("{\n\t.reg .pred P;\nW:\n\tmbarrier.try_wait.parity.shared.b64 P, [%0], 0;\n\t@!P bra W;\n\t}" ::"r"(barrier) : "memory");
#endif
  float *out = *where + blockIdx.x * kRows * kColumns;
  for (int at = threadIdx.x; at < kRows * kColumns; at += blockDim.x) out[at] = tile[at / kColumns][at % kColumns] + (BUG == 2 ? 2 : 1);
  unsigned size;
  asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
  if (threadIdx.x == 0 && blockIdx.x == 0) *clusters = size;
#if BUG == 1
  asm volatile("{\n\t.reg .pred P;\nW:\n\tmbarrier.try_wait.parity.shared.b64 P, [%0], 0;\n\t@!P bra W;\n\t}" ::"r"(barrier) : "memory");
#endif
}

int main(int count, char **words) {
  const int elements = kTiles * kRows * kColumns;
  float *in, *out, **where;
  int *clusters;
  cudaMalloc(&in, elements * 4);
  cudaMalloc(&out, elements * 4);
  cudaMalloc(&where, sizeof out);
  cudaMalloc(&clusters, 4);
  cudaMemcpy(where, &out, sizeof out, cudaMemcpyHostToDevice);
  fill<<<elements / 256, 256>>>(in, elements);
  CUtensorMap map;
  cuuint64_t extents[] = {kColumns, kTiles * kRows}, strides[] = {kColumns * 4};
  cuuint32_t box[] = {kColumns, kRows}, steps[] = {1, 1};
  cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, in, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = 2, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = kTiles, config.blockDim = 128, config.attrs = &cluster, config.numAttrs = 1;
  cudaLaunchKernelEx(&config, add_one, map, where, clusters);
  std::vector<float> got(elements);
  int size = 0, wrong = 0;
  cudaMemcpy(got.data(), out, elements * 4, cudaMemcpyDeviceToHost);
  cudaMemcpy(&size, clusters, 4, cudaMemcpyDeviceToHost);
  for (int at = 0; at < elements; at++) wrong += got[at] != at + 1;
  printf("clusters of %d, %d wrong, argument %s\n", size, wrong, count > 1 ? words[1] : "none");
  return wrong != 0;
}
