// What NVIDIA's libraries become: block-wide scan, sort and reduction of CUB, cuda::atomic_ref with its memory orders.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cuda/atomic>

extern "C" __global__ void __launch_bounds__(128) block_wide(const int* in, int* sums, unsigned* keys, int* values, long long* total) {
    using Scan = cub::BlockScan<int, 128>;
    using Sort = cub::BlockRadixSort<unsigned, 128, 4, int>;
    using Reduce = cub::BlockReduce<long long, 128>;
    __shared__ union { typename Scan::TempStorage scan; typename Sort::TempStorage sort; typename Reduce::TempStorage reduce; } room;
    int value = in[threadIdx.x], sum;
    Scan(room.scan).InclusiveSum(value, sum);
    sums[threadIdx.x] = sum;
    __syncthreads();
    unsigned key[4];
    int item[4];
    for (int i = 0; i < 4; ++i) { key[i] = keys[threadIdx.x * 4 + i]; item[i] = threadIdx.x * 4 + i; }
    Sort(room.sort).Sort(key, item);
    for (int i = 0; i < 4; ++i) { keys[threadIdx.x * 4 + i] = key[i]; values[threadIdx.x * 4 + i] = item[i]; }
    __syncthreads();
    long long all = Reduce(room.reduce).Sum((long long)value * value);
    if (threadIdx.x == 0) *total = all;
}

// All threads of the grid count in and wait until all are there.
extern "C" __global__ void meet(int* count, float* largest, int* after) {
    cuda::atomic_ref<int, cuda::thread_scope_device> here(*count);
    cuda::atomic_ref<float> most(*largest);
    most.fetch_max(blockIdx.x * blockDim.x + threadIdx.x * 0.5f);
    here.fetch_add(1, cuda::memory_order_acq_rel);
    while (here.load(cuda::memory_order_acquire) < int(gridDim.x * blockDim.x)) { }
    after[blockIdx.x * blockDim.x + threadIdx.x] = int(*(volatile float*)largest * 2);
}
