// C[m, n] = A[m, k] . B[n, k]^T with cp.async, ldmatrix and mma.sync: three stages of 64 x 64 x 32, four warps of 32 x 32.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

constexpr int TILE = 64, STEP = 32, STAGES = 3, PITCH = STEP + 8;

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

__device__ void copy16(void* to, const void* from, bool inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(inside ? 16 : 0));
}

__device__ void load_matrices(uint32_t (&registers)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3]) : "r"(shared_address(row)));
}

template <typename T> __device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <> __device__ void multiply<__nv_bfloat16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <> __device__ void multiply<__half>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <typename T> struct Stages { T a[STAGES][TILE][PITCH], b[STAGES][TILE][PITCH]; };

template <typename T> __device__ void load(T (*to)[PITCH], const T* from, int row0, int rows, int start, int k) {
    for (int chunk = threadIdx.x; chunk < TILE * STEP / 8; chunk += 128) {
        int row = chunk / (STEP / 8), column = chunk % (STEP / 8) * 8;
        bool inside = row0 + row < rows && start + column < k;
        copy16(&to[row][column], from + (inside ? (row0 + row) * k + start + column : 0), inside);
    }
}

template <typename T> __device__ void gemm(const T* a, const T* b, float* c, int m, int n, int k) {
    __shared__ alignas(16) Stages<T> stages;
    int row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE, steps = (k + STEP - 1) / STEP;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    float sum[2][4][4] = {};
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        if (stage < steps) {
            load(stages.a[stage], a, row0, m, stage * STEP, k);
            load(stages.b[stage], b, column0, n, stage * STEP, k);
        }
        asm volatile("cp.async.commit_group;");
    }
    for (int step = 0; step < steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2));
        __syncthreads();
        int ahead = step + STAGES - 1;
        if (ahead < steps) {
            load(stages.a[ahead % STAGES], a, row0, m, ahead * STEP, k);
            load(stages.b[ahead % STAGES], b, column0, n, ahead * STEP, k);
        }
        asm volatile("cp.async.commit_group;");
        auto& left = stages.a[step % STAGES];
        auto& right = stages.b[step % STAGES];
        for (int inner = 0; inner < STEP; inner += 16) {
            uint32_t fa[2][4], fb[2][4];
            for (int i = 0; i < 2; ++i) load_matrices(fa[i], &left[wm + i * 16 + lane % 16][inner + lane / 16 * 8]);
            for (int j = 0; j < 2; ++j)
                load_matrices(fb[j], &right[wn + j * 16 + lane / 16 * 8 + lane % 8][inner + lane / 8 % 2 * 8]);
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j) multiply<T>(sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
        }
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int e = 0; e < 4; ++e) {
                int row = row0 + wm + i * 16 + lane / 4 + e / 2 * 8, column = column0 + wn + j * 8 + lane % 4 * 2 + e % 2;
                if (row < m && column < n) c[row * n + column] = sum[i][j][e];
            }
}

extern "C" __global__ void __launch_bounds__(128) gemm_bf16(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int m, int n, int k) {
    gemm(a, b, c, m, n, k);
}
extern "C" __global__ void __launch_bounds__(128) gemm_f16(const __half* a, const __half* b, float* c, int m, int n, int k) {
    gemm(a, b, c, m, n, k);
}
