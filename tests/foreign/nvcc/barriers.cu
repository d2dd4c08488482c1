// libcu++: cuda::barrier between producer and consumer warps, a cuda::pipeline of asynchronous copies, thread-scope forms.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>

namespace cg = cooperative_groups;

// Warp 0 fills two buffers in turn, the other warps add up what is in them.
extern "C" __global__ void handed_over(const float* from, float* sums, int rounds) {
    using barrier = cuda::barrier<cuda::thread_scope_block>;
#pragma nv_diag_suppress static_var_with_dynamic_init
    __shared__ barrier full[2], empty[2];
    __shared__ float buffer[2][128];
    auto block = cg::this_thread_block();
    if (block.thread_rank() < 2) {
        init(&full[block.thread_rank()], block.size());
        init(&empty[block.thread_rank()], block.size());
    }
    block.sync();
    if (threadIdx.x < 32) {
        for (int round = 0; round < rounds; ++round) {
            int slot = round & 1;
            if (round >= 2) empty[slot].arrive_and_wait();
            for (int i = threadIdx.x; i < 128; i += 32) buffer[slot][i] = from[round * 128 + i];
            (void)full[slot].arrive();
        }
    } else {
        float sum = 0;
        for (int round = 0; round < rounds; ++round) {
            int slot = round & 1;
            full[slot].arrive_and_wait();
            sum += buffer[slot][threadIdx.x - 32];
            if (round + 2 < rounds) (void)empty[slot].arrive();
        }
        sums[threadIdx.x - 32] = sum;
    }
}

// The whole block copies two batches ahead with cuda::memcpy_async on a pipeline in shared memory.
extern "C" __global__ void piped(const float* from, float* to, int batches) {
    constexpr int STAGES = 2;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    extern __shared__ float batch[];
    auto block = cg::this_thread_block();
    auto pipeline = cuda::make_pipeline(block, &state);
    int size = block.size();
    for (int done = 0, ahead = 0; done < batches; ++done) {
        for (; ahead < batches && ahead < done + STAGES; ++ahead) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, batch + ahead % STAGES * size, from + ahead * size, cuda::aligned_size_t<16>(sizeof(float) * size), pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        int other = size - 1 - threadIdx.x;
        to[done * size + threadIdx.x] = 2 * batch[done % STAGES * size + other];
        pipeline.consumer_release();
    }
}

// Two roles of one pipeline: the first warp produces, the rest consume.
extern "C" __global__ void roles(const float4* from, float4* to, int batches) {
    constexpr int STAGES = 3;
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, STAGES> state;
    __shared__ float4 batch[STAGES][32];
    auto block = cg::this_thread_block();
    auto role = threadIdx.x < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
    auto pipeline = cuda::make_pipeline(block, &state, role);
    for (int at = 0; at < batches; ++at) {
        if (role == cuda::pipeline_role::producer) {
            pipeline.producer_acquire();
            cuda::memcpy_async(&batch[at % STAGES][threadIdx.x], from + at * 32 + threadIdx.x, cuda::aligned_size_t<16>(16), pipeline);
            pipeline.producer_commit();
        } else {
            pipeline.consumer_wait();
            if (threadIdx.x < 64) {
                float4 v = batch[at % STAGES][threadIdx.x - 32];
                to[at * 32 + threadIdx.x - 32] = make_float4(v.w, v.z, v.y, v.x);
            }
            pipeline.consumer_release();
        }
    }
}

// One thread's own pipeline (cp.async groups), and a copy that completes on a barrier.
extern "C" __global__ void own(const int* from, int* to) {
    __shared__ int mine[2][64];
    __shared__ cuda::barrier<cuda::thread_scope_block> arrived;
    auto block = cg::this_thread_block();
    if (threadIdx.x == 0) init(&arrived, block.size());
    block.sync();
    auto pipeline = cuda::make_pipeline();
    pipeline.producer_acquire();
    cuda::memcpy_async(&mine[0][threadIdx.x], from + threadIdx.x, sizeof(int), pipeline);
    pipeline.producer_commit();
    cuda::memcpy_async(block, mine[1], from + 64, cuda::aligned_size_t<16>(256), arrived);
    pipeline.consumer_wait();
    int here = mine[0][threadIdx.x];
    pipeline.consumer_release();
    arrived.arrive_and_wait();
    to[threadIdx.x] = here + 1000 * mine[1][63 - threadIdx.x];
}
