// Parts of a model server for the clock to predict before they run: nvcc -ptx -arch=sm_90a -std=c++17 serving.cu -o serving.ptx
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

__device__ uint32_t shared_address(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }
__device__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void wait_group() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ void load4(uint32_t* r, const void* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(at)) : "memory");
}
__device__ void multiply(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ uint32_t packed(float one, float two) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(one, two);
    return *reinterpret_cast<uint32_t*>(&pair);
}
__device__ float warp_sum(float value) {
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

// C = A B^T of 64 x 64 x 64, one product per CTA of 4 warps, which loads both operands at once.
extern "C" __global__ void __launch_bounds__(128) batched(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* c) {
    constexpr int PITCH = 72;
    __shared__ __align__(16) __nv_bfloat16 left[64 * PITCH], right[64 * PITCH];
    size_t first = (size_t)blockIdx.x * 64 * 64;
    for (int i = threadIdx.x; i < 512; i += 128) {
        copy16(left + i / 8 * PITCH + i % 8 * 8, a + first + i * 8);
        copy16(right + i / 8 * PITCH + i % 8 * 8, b + first + i * 8);
    }
    commit();
    wait_group<0>();
    __syncthreads();
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    float sums[8][4] = {};
#pragma unroll
    for (int k = 0; k < 64; k += 16) {
        uint32_t one[4], two[4];
        load4(one, left + (warp * 16 + lane % 16) * PITCH + k + lane / 16 * 8);
        for (int j = 0; j < 4; ++j) {
            load4(two, right + (j * 16 + lane / 16 * 8 + lane % 8) * PITCH + k + lane / 8 % 2 * 8);
            multiply(sums[2 * j], one, two[0], two[1]);
            multiply(sums[2 * j + 1], one, two[2], two[3]);
        }
    }
    for (int j = 0; j < 8; ++j)
        for (int half = 0; half < 2; ++half)
            *reinterpret_cast<uint32_t*>(c + first + (warp * 16 + lane / 4 + half * 8) * 64 + j * 8 + lane % 4 * 2) =
                packed(sums[j][2 * half], sums[j][2 * half + 1]);
}

// 16 rows of bf16 times weights of four bits: 64 columns per CTA, 128 of k per stage, a scale per column and stage.
extern "C" __global__ void __launch_bounds__(128) four_bit_product(const __nv_bfloat16* x, const uint8_t* w, const float* scales,
                                                                   __nv_bfloat16* y, int n, int k) {
    constexpr int STAGES = 4, DEPTH = 128, PITCH = DEPTH + 8, BYTES = 80;
    __shared__ __align__(16) __nv_bfloat16 rows[STAGES][16 * PITCH];
    __shared__ __align__(16) uint8_t weights[STAGES][64 * BYTES];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, first = blockIdx.x * 64, count = k / DEPTH;
    auto start = [&](int at) {
        if (at < count) {
            for (int i = threadIdx.x; i < 256; i += 128) {
                copy16(rows[at % STAGES] + i / 16 * PITCH + i % 16 * 8, x + (size_t)(i / 16) * k + at * DEPTH + i % 16 * 8);
                copy16(weights[at % STAGES] + i / 4 * BYTES + i % 4 * 16, w + (size_t)(first + i / 4) * (k / 2) + at * (DEPTH / 2) + i % 4 * 16);
            }
        }
        commit();
    };
    float sums[2][4] = {};
    for (int i = 0; i < STAGES - 1; ++i) start(i);
    for (int at = 0; at < count; ++at) {
        wait_group<STAGES - 2>();
        __syncthreads();
        start(at + STAGES - 1);
        float scale[2];
        for (int j = 0; j < 2; ++j) scale[j] = scales[(size_t)at * n + first + warp * 16 + j * 8 + lane / 4];
#pragma unroll
        for (int inner = 0; inner < DEPTH; inner += 16) {
            uint32_t one[4];
            load4(one, rows[at % STAGES] + lane % 16 * PITCH + inner + lane / 16 * 8);
            for (int j = 0; j < 2; ++j) {
                const uint8_t* mine = weights[at % STAGES] + (warp * 16 + j * 8 + lane / 4) * BYTES + inner / 2 + lane % 4;
                uint32_t two[2];
                for (int part = 0; part < 2; ++part) {
                    int byte = mine[part * 4];
                    two[part] = packed(((byte & 15) - 8) * scale[j], ((byte >> 4) - 8) * scale[j]);
                }
                multiply(sums[j], one, two[0], two[1]);
            }
        }
    }
    for (int j = 0; j < 2; ++j)
        for (int half = 0; half < 2; ++half)
            *reinterpret_cast<uint32_t*>(y + (size_t)(lane / 4 + half * 8) * n + first + warp * 16 + j * 8 + lane % 4 * 2) =
                packed(sums[j][2 * half], sums[j][2 * half + 1]);
}

// A step of a radix sort: keys go to 16 buckets by four bits. Ranks in a CTA by atomics in shared memory, places of a CTA
// by atomics in L2. Places wrap round, so that repeated launches stay inside.
extern "C" __global__ void __launch_bounds__(256) partition(const uint4* keys, uint32_t* ends, uint32_t* buckets, int shift, int capacity) {
    __shared__ uint32_t counts[16], begins[16];
    if (threadIdx.x < 16) counts[threadIdx.x] = 0;
    __syncthreads();
    uint4 four = keys[blockIdx.x * 256 + threadIdx.x];
    uint32_t key[4] = {four.x, four.y, four.z, four.w}, rank[4];
    for (int i = 0; i < 4; ++i) rank[i] = atomicAdd(&counts[key[i] >> shift & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) begins[threadIdx.x] = atomicAdd(&ends[threadIdx.x], counts[threadIdx.x]);
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        uint32_t digit = key[i] >> shift & 15;
        buckets[digit * capacity + ((begins[digit] + rank[i]) & (capacity - 1))] = key[i];
    }
}

// Depthwise convolution 7 x 7 of planes of side x side: tiles of 64 x 16 with their surroundings in shared memory, four outputs per thread.
extern "C" __global__ void __launch_bounds__(256) depthwise(const float* x, const float* taps, float* y, int side, int channels) {
    __shared__ float piece[22][72], weights[49];
    size_t plane = (size_t)blockIdx.z * side * side;
    int top = blockIdx.y * 16 - 3, aside = blockIdx.x * 64 - 3;
    if (threadIdx.x < 49) weights[threadIdx.x] = taps[blockIdx.z % channels * 49 + threadIdx.x];
    for (int i = threadIdx.x; i < 22 * 70; i += 256) {
        int row = top + i / 70, column = aside + i % 70;
        bool inside = row >= 0 && row < side && column >= 0 && column < side;
        piece[i / 70][i % 70] = inside ? x[plane + row * side + column] : 0.f;
    }
    __syncthreads();
    int column = threadIdx.x % 64, row = threadIdx.x / 64 * 4;
    float sums[4] = {};
    for (int across = 0; across < 7; ++across) {
        float down[10];
        for (int i = 0; i < 10; ++i) down[i] = piece[row + i][column + across];
        for (int tap = 0; tap < 7; ++tap)
            for (int i = 0; i < 4; ++i) sums[i] = fmaf(down[i + tap], weights[tap * 7 + across], sums[i]);
    }
    for (int i = 0; i < 4; ++i) y[plane + (size_t)(blockIdx.y * 16 + row + i) * side + blockIdx.x * 64 + column] = sums[i];
}

// Rows of a table, by token, plus positions, then a layer norm: a warp per token, 1024 columns.
extern "C" __global__ void __launch_bounds__(256) embedded(const uint4* table, const uint4* places, const int* tokens, const float* weight,
                                                           uint4* y, int length) {
    int token = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t row = (size_t)tokens[token] * 128, place = (size_t)(token % length) * 128;
    float values[32], sum = 0.f, squares = 0.f;
    for (int i = 0; i < 4; ++i) {
        uint4 one = table[row + i * 32 + lane], two = places[place + i * 32 + lane];
        const __nv_bfloat162 *a = reinterpret_cast<const __nv_bfloat162*>(&one), *b = reinterpret_cast<const __nv_bfloat162*>(&two);
        for (int j = 0; j < 4; ++j) {
            float2 x = __bfloat1622float2(a[j]), z = __bfloat1622float2(b[j]);
            values[8 * i + 2 * j] = x.x + z.x, values[8 * i + 2 * j + 1] = x.y + z.y;
        }
    }
    for (float value : values) sum += value;
    float mean = warp_sum(sum) * (1.f / 1024);
    for (float value : values) squares += (value - mean) * (value - mean);
    float scale = rsqrtf(warp_sum(squares) * (1.f / 1024) + 1e-5f);
    for (int i = 0; i < 4; ++i) {
        const float* w = weight + (i * 32 + lane) * 8;
        uint32_t made[4];
        for (int j = 0; j < 4; ++j)
            made[j] = packed((values[8 * i + 2 * j] - mean) * scale * w[2 * j], (values[8 * i + 2 * j + 1] - mean) * scale * w[2 * j + 1]);
        y[(size_t)token * 128 + i * 32 + lane] = make_uint4(made[0], made[1], made[2], made[3]);
    }
}

// Sums of columns over the rows of a cluster of four: partial sums stay in shared memory, and each CTA reads a quarter of all.
extern "C" __global__ void __cluster_dims__(4, 1, 1) __launch_bounds__(256) cluster_columns(const float4* x, float* out, int rows) {
    __shared__ float4 partial[256];
    auto cluster = cooperative_groups::this_cluster();
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
    const float4* mine = x + (size_t)blockIdx.x * rows * 256 + threadIdx.x;
#pragma unroll 4
    for (int row = 0; row < rows; ++row) {
        float4 one = mine[(size_t)row * 256];
        sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
    partial[threadIdx.x] = sum;
    cluster.sync();
    int column = cluster.block_rank() * 256 + threadIdx.x;
    float total = 0.f;
    for (int other = 0; other < 4; ++other) total += reinterpret_cast<const float*>(cluster.map_shared_rank(partial, other))[column];
    out[(size_t)(blockIdx.x / 4) * 1024 + column] = total;
    cluster.sync();
}

// Decoding with pages of 16 keys: a CTA per sequence and head of keys, a warp per head of queries; pages pass a ring of four.
extern "C" __global__ void __launch_bounds__(128) paged(const __half* q, const __half* keys, const __half* values, const int* pages,
                                                        __half* o, int length) {
    constexpr int STAGES = 4, PITCH = 136;
    __shared__ __align__(16) __half ring[STAGES][2][16 * PITCH];
    __shared__ float query[4][128];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, heads = gridDim.x, count = length / 16;
    const int* mine = pages + blockIdx.y * count;
    auto start = [&](int at) {
        if (at < count) {
            size_t from = ((size_t)mine[at] * heads + blockIdx.x) * 16 * 128;
            for (int i = threadIdx.x; i < 256; i += 128) {
                copy16(ring[at % STAGES][0] + i / 16 * PITCH + i % 16 * 8, keys + from + i * 8);
                copy16(ring[at % STAGES][1] + i / 16 * PITCH + i % 16 * 8, values + from + i * 8);
            }
        }
        commit();
    };
    for (int i = 0; i < STAGES - 1; ++i) start(i);
    size_t head = ((size_t)blockIdx.y * heads + blockIdx.x) * 4 + warp;
    for (int i = lane; i < 128; i += 32) query[warp][i] = __half2float(q[head * 128 + i]);
    float largest = -1e30f, total = 0.f, sums[4] = {};
    for (int at = 0; at < count; ++at) {
        wait_group<STAGES - 2>();
        __syncthreads();
        start(at + STAGES - 1);
        const __half2* key = reinterpret_cast<const __half2*>(ring[at % STAGES][0] + lane / 2 * PITCH + lane % 2 * 64);
        float score = 0.f;
#pragma unroll
        for (int i = 0; i < 32; ++i) {
            float2 two = __half22float2(key[i]);
            score += two.x * query[warp][lane % 2 * 64 + 2 * i] + two.y * query[warp][lane % 2 * 64 + 2 * i + 1];
        }
        score = (score + __shfl_xor_sync(0xffffffffu, score, 1)) * 0.1275f;
        float higher = fmaxf(largest, score);
        for (int distance = 2; distance < 32; distance *= 2) higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, distance));
        float power = exp2f(score - higher), shrink = exp2f(largest - higher);
        total = total * shrink + power, largest = higher;
        for (float& sum : sums) sum *= shrink;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            float weight = __shfl_sync(0xffffffffu, power, 2 * i);
            const __half2* value = reinterpret_cast<const __half2*>(ring[at % STAGES][1] + i * PITCH + lane * 4);
            float2 one = __half22float2(value[0]), two = __half22float2(value[1]);
            sums[0] += weight * one.x, sums[1] += weight * one.y, sums[2] += weight * two.x, sums[3] += weight * two.y;
        }
    }
    float scale = 2.f / warp_sum(total);  // two lanes hold each key's power
    __half2* to = reinterpret_cast<__half2*>(o + head * 128 + lane * 4);
    to[0] = __floats2half2_rn(sums[0] * scale, sums[1] * scale);
    to[1] = __floats2half2_rn(sums[2] * scale, sums[3] * scale);
}

// Running sums of rows of 4096: sixteen elements per thread, through shared memory; sums of lanes, of warps, of the CTA.
extern "C" __global__ void __launch_bounds__(256) summed_rows(const float4* x, float4* y) {
    __shared__ float4 piece[1024 + 64];
    __shared__ float ends[8];
    size_t first = (size_t)blockIdx.x * 1024;
    int thread = threadIdx.x, lane = thread % 32;
    for (int i = 0; i < 4; ++i) piece[i * 256 + thread + (i * 256 + thread) / 16] = x[first + i * 256 + thread];
    __syncthreads();
    float values[16], sum = 0.f;
    for (int i = 0; i < 4; ++i) {
        float4 four = piece[thread * 4 + i + (thread * 4 + i) / 16];
        values[4 * i] = sum += four.x, values[4 * i + 1] = sum += four.y;
        values[4 * i + 2] = sum += four.z, values[4 * i + 3] = sum += four.w;
    }
    float before = sum;
    for (int distance = 1; distance < 32; distance *= 2) {
        float other = __shfl_up_sync(0xffffffffu, before, distance);
        if (lane >= distance) before += other;
    }
    if (lane == 31) ends[thread / 32] = before;
    before -= sum;
    __syncthreads();
    for (int warp = 0; warp < thread / 32; ++warp) before += ends[warp];
    for (int i = 0; i < 4; ++i)
        piece[thread * 4 + i + (thread * 4 + i) / 16] =
            make_float4(values[4 * i] + before, values[4 * i + 1] + before, values[4 * i + 2] + before, values[4 * i + 3] + before);
    __syncthreads();
    for (int i = 0; i < 4; ++i) y[first + i * 256 + thread] = piece[i * 256 + thread + (i * 256 + thread) / 16];
}
