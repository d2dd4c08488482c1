// Row-wise kernels: softmax by one block per row, layer norm by one warp per row with vector loads.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

template <typename Op> __device__ float over_block(float value, Op op, float neutral) {
    __shared__ float parts[32];
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    value = cg::reduce(warp, value, op);
    if (warp.thread_rank() == 0) parts[warp.meta_group_rank()] = value;
    __syncthreads();
    value = warp.thread_rank() < warp.meta_group_size() ? parts[warp.thread_rank()] : neutral;
    __syncthreads();
    return cg::reduce(warp, value, op);
}

extern "C" __global__ void softmax(const float* in, float* out, int columns) {
    const float* row = in + size_t(blockIdx.x) * columns;
    float largest = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, row[i]);
    largest = over_block(largest, cg::greater<float>(), -INFINITY);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(row[i] - largest);
    sum = over_block(sum, cg::plus<float>(), 0.0f);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[size_t(blockIdx.x) * columns + i] = expf(row[i] - largest) / sum;
}

extern "C" __global__ void layer_norm(const __half* in, const float* weight, const float* bias, __half* out, int rows, int columns, float epsilon) {
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const uint4* chunks = reinterpret_cast<const uint4*>(in + size_t(row) * columns);
    float sum = 0, squares = 0;
    for (int chunk = lane; chunk < columns / 8; chunk += 32) {
        uint4 packed = chunks[chunk];
        const __half2* pairs = reinterpret_cast<const __half2*>(&packed);
        for (int i = 0; i < 4; ++i) {
            float2 v = __half22float2(pairs[i]);
            sum += v.x + v.y;
            squares += v.x * v.x + v.y * v.y;
        }
    }
    for (int offset = 16; offset; offset /= 2) {
        sum += __shfl_down_sync(~0u, sum, offset);
        squares += __shfl_down_sync(~0u, squares, offset);
    }
    sum = __shfl_sync(~0u, sum, 0);
    squares = __shfl_sync(~0u, squares, 0);
    float mean = sum / columns, scale = rsqrtf(squares / columns - mean * mean + epsilon);
    for (int i = lane; i < columns; i += 32) {
        float v = (__half2float(in[size_t(row) * columns + i]) - mean) * scale;
        out[size_t(row) * columns + i] = __float2half_rn(fmaf(v, weight[i], bias[i]));
    }
}
