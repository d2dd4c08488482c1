// Cooperative groups over a cluster: a histogram spread over the shared memory of four CTAs, a ring of neighbours.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) histogram(const int* values, int count, int* bins) {
    __shared__ int mine[64];
    auto cluster = cg::this_cluster();
    if (threadIdx.x < 64) mine[threadIdx.x] = 0;
    cluster.sync();
    int first = cluster.block_rank() * blockDim.x + threadIdx.x;
    for (int i = first; i < count; i += cluster.num_threads()) {
        int bin = values[i];
        int* other = cluster.map_shared_rank(mine, bin / 64);
        atomicAdd(other + bin % 64, 1);
    }
    cluster.sync();
    if (threadIdx.x < 64) atomicAdd(bins + cluster.block_rank() * 64 + threadIdx.x, mine[threadIdx.x]);
}

extern "C" __global__ void __cluster_dims__(2, 2, 1) ring(const float* in, float* out) {
    extern __shared__ float box[];
    auto cluster = cg::this_cluster();
    auto block = cg::this_thread_block();
    unsigned rank = cluster.block_rank(), next = (rank + 1) % cluster.num_blocks();
    int at = rank * blockDim.x + threadIdx.x;
    float* neighbour = cluster.map_shared_rank(box, next);
    neighbour[threadIdx.x] = in[at];
    auto token = cluster.barrier_arrive();
    float own = in[at];
    cluster.barrier_wait(std::move(token));
    auto warp = cg::tiled_partition<32>(block);
    float largest = cg::reduce(warp, box[threadIdx.x], cg::greater<float>());
    out[at] = own + 100 * box[threadIdx.x] + 10000 * largest;
    cluster.sync();
}
