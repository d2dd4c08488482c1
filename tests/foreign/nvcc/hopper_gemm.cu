// C[m, n] = A[m, k] . B[n, k]^T by TMA and wgmma through inline PTX: one producer warp, one consumer warpgroup, TMA store.
#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>

constexpr int M = 64, N = 128, K = 64, STAGES = 3;

struct alignas(1024) Shared {
    __nv_bfloat16 a[STAGES][M * K], b[STAGES][N * K], c[2][M * 64];
    uint64_t full[STAGES], empty[STAGES];
};

__device__ uint32_t at(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }
__device__ void init(uint64_t* barrier, int count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(count)); }
__device__ void arrive(uint64_t* barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(barrier)) : "memory"); }
__device__ void expect(uint64_t* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes) : "memory");
}
__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile("{\n.reg .pred done;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra GONE;\nbra AGAIN;\nGONE:\n}"
                 ::"r"(at(barrier)), "r"(parity) : "memory");
}
__device__ void load(void* to, const CUtensorMap* map, int x, int y, uint64_t* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 ::"r"(at(to)), "l"(map), "r"(x), "r"(y), "r"(at(barrier)) : "memory");
}
__device__ uint64_t descriptor(const void* tile) {
    uint64_t bits = (at(tile) & 0x3ffff) >> 4;
    return bits | uint64_t(1) << 16 | uint64_t(1024 >> 4) << 32 | uint64_t(1) << 62;
}
// Half of the accumulators of a 64 x 128 product: 64 x 64.
__device__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int accumulate) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
                 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
                   "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]),
                   "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
                 : "l"(a), "l"(b), "r"(accumulate));
}

extern "C" __global__ void __launch_bounds__(256)
gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, const __grid_constant__ CUtensorMap c, int k_tiles) {
    extern __shared__ Shared shared[];
    Shared& s = shared[0];
    int row = blockIdx.y * M, column = blockIdx.x * N;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) { init(&s.full[stage], 1); init(&s.empty[stage], 1); }
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 128) {
            for (int step = 0; step < k_tiles; ++step) {
                int stage = step % STAGES;
                wait(&s.empty[stage], step / STAGES % 2 ^ 1);
                expect(&s.full[stage], (M + N) * K * 2);
                load(s.a[stage], &a, step * K, row, &s.full[stage]);
                load(s.b[stage], &b, step * K, column, &s.full[stage]);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float left[32], right[32];
    for (int step = 0; step < k_tiles; ++step) {
        int stage = step % STAGES;
        wait(&s.full[stage], step / STAGES % 2);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int inner = 0; inner < K; inner += 16) {
            int accumulate = step + inner > 0;
            multiply(left, descriptor(s.a[stage] + inner), descriptor(s.b[stage] + inner), accumulate);
            multiply(right, descriptor(s.a[stage] + inner), descriptor(s.b[stage] + 64 * K + inner), accumulate);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (threadIdx.x == 0) arrive(&s.empty[stage]);
    }
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int half = 0; half < 2; ++half)
        for (int chunk = 0; chunk < 4; ++chunk) {
            uint32_t packed[4];
            for (int e = 0; e < 4; ++e) {
                float* from = (half ? right : left) + chunk * 8 + e * 2;
                __nv_bfloat162 pair = __floats2bfloat162_rn(from[0], from[1]);
                packed[e] = *reinterpret_cast<uint32_t*>(&pair);
            }
            int local = warp * 16 + lane % 16, group = chunk * 2 + lane / 16;
            uint32_t to = at(s.c[half]) + local * 128 + ((group ^ local % 8) << 4);
            asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                         ::"r"(to), "r"(packed[0]), "r"(packed[1]), "r"(packed[2]), "r"(packed[3]) : "memory");
        }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync 1, 128;" ::: "memory");
    if (threadIdx.x == 0) {
        for (int half = 0; half < 2; ++half)
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                         ::"l"(&c), "r"(column + half * 64), "r"(row), "r"(at(s.c[half])) : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
    }
}
