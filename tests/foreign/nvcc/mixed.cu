// CUDA C++ kernels whose PTX exercises what nvcc emits: parameters by value, tables, calls, switches, printf, inline
// assembly. Rewritten by:  nvcc -ptx -arch=sm_90a -lineinfo mixed.cu -o mixed_sm90a.ptx
//                          nvcc -ptx -arch=sm_80 mixed.cu -o mixed_sm80.ptx
// and then the folders of the paths in `.file` are taken out by hand.
#include <cstdint>
#include <cstdio>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__constant__ float weights[8] = {1.0f, 2.0f, 0.5f, -1.0f};
__device__ int table[4][2] = {{1, 2}, {3, 4}};
__device__ unsigned counter;
__device__ const char message[] = "sum";

extern "C" __global__ void __launch_bounds__(256, 2) saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

struct Pack { float scale; short shift; char sign[3]; };

extern "C" __global__ void by_value(Pack pack, float4* out, const float4* in) {
    float4 v = in[threadIdx.x];
    v.x *= pack.scale; v.y += weights[threadIdx.x & 7]; v.z = pack.shift; v.w = pack.sign[1];
    out[threadIdx.x] = v;
    atomicAdd(&counter, table[threadIdx.x & 3][1]);
}

extern "C" __global__ void row_sum(const float* x, float* y, int columns) {
    extern __shared__ float dynamic[];
    __shared__ float warp_sums[32];
    float sum = 0;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += x[blockIdx.x * columns + c];
    for (int offset = 16; offset; offset >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if ((threadIdx.x & 31) == 0) warp_sums[threadIdx.x >> 5] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float total = 0;
        for (int w = 0; w < (blockDim.x + 31) / 32; ++w) total += warp_sums[w];
        y[blockIdx.x] = total;
        dynamic[0] = total;
        printf("%s %f\n", message, total);
    }
}

__device__ __noinline__ float helper(float x, int* flag) { *flag = 1; return x * x + 1.0f; }
typedef float (*function_pointer)(float);
__device__ float twice(float x) { return 2 * x; }
__device__ float thrice(float x) { return 3 * x; }
__device__ function_pointer functions[2] = {twice, thrice};

extern "C" __global__ void calls(float* x, int which) {
    int flag;
    float local[16];
    for (int i = 0; i < 16; ++i) local[i] = x[i] * i;
    x[threadIdx.x] = helper(local[which & 15], &flag) + functions[which](x[1]) + flag;
    switch (which) {
        case 0: x[0] = 1; break;
        case 1: x[1] = sinf(x[0]); break;
        case 2: x[2] = 4; break;
        case 3: x[3] = expf(x[3]); break;
        case 4: x[4] = 7; break;
        case 5: x[5] = x[6] / x[7]; break;
        default: x[8] = 3;
    }
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void assembly(uint32_t* out, uint64_t* wide) {
    uint32_t smem = threadIdx.x, done;
    asm volatile("{\n\t.reg .pred p;\n\t.reg .b32 t;\n\tmov.u32 t, 0x10; // nested /* comment\n\t"
                 "setp.ne.u32 p, t, %1; selp.b32 %0, 1, 0, p;\n\t}" : "=r"(done) : "r"(smem));
    asm volatile("{ .reg .pred P1; LAB_WAIT: mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1; @P1 bra DONE; bra LAB_WAIT; DONE: }"
                 :: "r"(smem), "r"(done) : "memory");
    asm("mul.wide.u32 %0, %1, %2;" : "=l"(wide[0]) : "r"(smem), "r"(done));
    out[0] = done;
}
#endif

extern "C" __global__ void halves(const __half2* a, const __nv_bfloat162* b, float2* out, __nv_fp8x4_e4m3* small) {
    float2 x = __half22float2(__hfma2(a[0], a[1], a[2])), y = __bfloat1622float2(__hadd2(b[0], b[1]));
    out[0] = make_float2(x.x + y.x, x.y + y.y);
    small[0] = __nv_fp8x4_e4m3(make_float4(x.x, x.y, y.x, y.y));
}

#if __CUDA_ARCH__ >= 900
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(double* x) {
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] = sqrt(x[i]) + 1.5;
}
#endif

template <typename T> __global__ void templated(T* p, const T q) { p[threadIdx.x] = q; }
template __global__ void templated<long long>(long long*, const long long);
