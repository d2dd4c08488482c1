// Products by mma.sync for the clock to predict before they run: nvcc -ptx -arch=sm_90a -std=c++17 mma.cu -o mma.ptx
#include <cuda_bf16.h>
#include <cstdint>

__device__ uint32_t shared_address(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }
__device__ void copy16(const void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ void wait_group() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
__device__ void load4(uint32_t* r, const void* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(at)) : "memory");
}
__device__ void load4_turned(uint32_t* r, const void* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(shared_address(at)) : "memory");
}
__device__ void multiply(float* d, const uint32_t* a, uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// C = A B^T, or C += with splits of K: tiles of BM x BN, BK deep, rows padded by 16 bytes, warps WM x WN.
template <int BM, int BN, int BK, int STAGES, int WARPS_M, int WARPS_N, bool ATOMIC>
__device__ void product(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    constexpr int PITCH = BK + 8, THREADS = WARPS_M * WARPS_N * 32, WM = BM / WARPS_M, WN = BN / WARPS_N, CHUNKS = BK / 8;
    extern __shared__ __nv_bfloat16 memory[];
    __nv_bfloat16 *left = memory, *right = memory + STAGES * BM * PITCH;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, down = warp / WARPS_N * WM, across = warp % WARPS_N * WN;
    int depth = k / gridDim.z, count = depth / BK;
    const __nv_bfloat16* top = a + (size_t)blockIdx.y * BM * k + blockIdx.z * depth;
    const __nv_bfloat16* side = b + (size_t)blockIdx.x * BN * k + blockIdx.z * depth;
    auto start = [&](int at) {
        if (at < count) {
            int stage = at % STAGES;
            for (int i = threadIdx.x; i < BM * CHUNKS; i += THREADS)
                copy16(left + (stage * BM + i / CHUNKS) * PITCH + i % CHUNKS * 8, top + (size_t)(i / CHUNKS) * k + at * BK + i % CHUNKS * 8);
            for (int i = threadIdx.x; i < BN * CHUNKS; i += THREADS)
                copy16(right + (stage * BN + i / CHUNKS) * PITCH + i % CHUNKS * 8, side + (size_t)(i / CHUNKS) * k + at * BK + i % CHUNKS * 8);
        }
        commit();
    };
    float sums[WM / 16][WN / 8][4] = {};
    for (int i = 0; i < STAGES - 1; ++i) start(i);
    for (int at = 0; at < count; ++at) {
        wait_group<STAGES - 2>();
        __syncthreads();
        start(at + STAGES - 1);
        int stage = at % STAGES;
#pragma unroll
        for (int inner = 0; inner < BK; inner += 16) {
            uint32_t one[WM / 16][4], two[WN / 16][4];
            for (int i = 0; i < WM / 16; ++i)
                load4(one[i], left + (stage * BM + down + i * 16 + lane % 16) * PITCH + inner + lane / 16 * 8);
            for (int j = 0; j < WN / 16; ++j)
                load4(two[j], right + (stage * BN + across + j * 16 + lane / 16 * 8 + lane % 8) * PITCH + inner + lane / 8 % 2 * 8);
            for (int i = 0; i < WM / 16; ++i)
                for (int j = 0; j < WN / 8; ++j) multiply(sums[i][j], one[i], two[j / 2][j % 2 * 2], two[j / 2][j % 2 * 2 + 1]);
        }
    }
    for (int i = 0; i < WM / 16; ++i)
        for (int j = 0; j < WN / 8; ++j)
            for (int half = 0; half < 2; ++half) {
                float* to = c + (size_t)(blockIdx.y * BM + down + i * 16 + lane / 4 + half * 8) * n + blockIdx.x * BN + across + j * 8 + lane % 4 * 2;
                if (ATOMIC) atomicAdd(to, sums[i][j][2 * half]), atomicAdd(to + 1, sums[i][j][2 * half + 1]);
                else *reinterpret_cast<float2*>(to) = make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
            }
}

extern "C" __global__ void __launch_bounds__(256) four_stages(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    product<128, 256, 32, 4, 2, 4, false>(a, b, c, n, k);
}
extern "C" __global__ void __launch_bounds__(128) two_stages(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    product<64, 64, 32, 2, 2, 2, false>(a, b, c, n, k);
}
extern "C" __global__ void __launch_bounds__(128) split(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    product<32, 128, 64, 3, 1, 4, true>(a, b, c, n, k);
}

// Attention in the manner of FlashAttention-2: 64 queries per CTA of 4 warps, keys and values by 64, heads of 128.
extern "C" __global__ void __launch_bounds__(128) attended(const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v,
                                                           __nv_bfloat16* o, int length) {
    constexpr int D = 128, PITCH = D + 8, ROWS = 64;
    extern __shared__ __nv_bfloat16 pieces[];
    __nv_bfloat16 *keys = pieces, *values = pieces + ROWS * PITCH;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t head = (size_t)blockIdx.y * length * D;
    auto fetch = [&](__nv_bfloat16* to, const __nv_bfloat16* from) {
        for (int i = threadIdx.x; i < ROWS * D / 8; i += 128) copy16(to + i / 16 * PITCH + i % 16 * 8, from + (size_t)i * 8);
        commit();
    };
    fetch(keys, q + head + (size_t)blockIdx.x * ROWS * D);
    wait_group<0>();
    __syncthreads();
    uint32_t query[D / 16][4];
    for (int i = 0; i < D / 16; ++i) load4(query[i], keys + (warp * 16 + lane % 16) * PITCH + i * 16 + lane / 16 * 8);
    __syncthreads();
    float sums[D / 8][4] = {}, largest[2] = {-1e30f, -1e30f}, total[2] = {};
    fetch(keys, k + head);
    for (int at = 0; at < length; at += ROWS) {
        fetch(values, v + head + (size_t)at * D);
        wait_group<1>();
        __syncthreads();
        float scores[ROWS / 8][4] = {};
        for (int i = 0; i < D / 16; ++i)
            for (int j = 0; j < ROWS / 16; ++j) {
                uint32_t two[4];
                load4(two, keys + (j * 16 + lane / 16 * 8 + lane % 8) * PITCH + i * 16 + lane / 8 % 2 * 8);
                multiply(scores[2 * j], query[i], two[0], two[1]);
                multiply(scores[2 * j + 1], query[i], two[2], two[3]);
            }
        __syncthreads();
        if (at + ROWS < length) fetch(keys, k + head + (size_t)(at + ROWS) * D);
        else commit();
        for (int half = 0; half < 2; ++half) {
            float higher = largest[half];
            for (int j = 0; j < ROWS / 8; ++j) higher = fmaxf(higher, fmaxf(scores[j][2 * half], scores[j][2 * half + 1]));
            higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 1));
            higher = fmaxf(higher, __shfl_xor_sync(0xffffffffu, higher, 2));
            float shrink = exp2f((largest[half] - higher) * 0.1275f), sum = 0.f;
            for (int j = 0; j < ROWS / 8; ++j)
                for (int i = 2 * half; i < 2 * half + 2; ++i) sum += scores[j][i] = exp2f((scores[j][i] - higher) * 0.1275f);
            total[half] = total[half] * shrink + sum, largest[half] = higher;
            for (int j = 0; j < D / 8; ++j) sums[j][2 * half] *= shrink, sums[j][2 * half + 1] *= shrink;
        }
        wait_group<1>();
        __syncthreads();
        for (int i = 0; i < ROWS / 16; ++i) {
            uint32_t one[4];
            for (int part = 0; part < 4; ++part) {
                float* p = scores[2 * i + part / 2] + part % 2 * 2;
                __nv_bfloat162 pair = __floats2bfloat162_rn(p[0], p[1]);
                one[part] = *reinterpret_cast<uint32_t*>(&pair);
            }
            for (int j = 0; j < D / 16; ++j) {
                uint32_t two[4];
                load4_turned(two, values + (i * 16 + lane % 16) * PITCH + j * 16 + lane / 16 * 8);
                multiply(sums[2 * j], one, two[0], two[1]);
                multiply(sums[2 * j + 1], one, two[2], two[3]);
            }
        }
        __syncthreads();
    }
    for (int half = 0; half < 2; ++half) {
        float all = total[half];
        all += __shfl_xor_sync(0xffffffffu, all, 1);
        all += __shfl_xor_sync(0xffffffffu, all, 2);
        float scale = 1.f / all;
        __nv_bfloat16* to = o + head + (size_t)(blockIdx.x * ROWS + warp * 16 + lane / 4 + half * 8) * D + lane % 4 * 2;
        for (int j = 0; j < D / 8; ++j)
            *reinterpret_cast<__nv_bfloat162*>(to + j * 8) = __floats2bfloat162_rn(sums[j][2 * half] * scale, sums[j][2 * half + 1] * scale);
    }
}
