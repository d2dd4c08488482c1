// What the C++ language and the maths library become: calls, switches, local arrays, structures, tables, conversions.
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

struct Point { float x, y; int tag; };

__device__ __noinline__ Point moved(Point p, const float (&by)[2], int* count) {
    *count += p.tag;
    return {p.x + by[0], p.y * by[1], p.tag + 1};
}
__device__ __noinline__ int collatz(int n) { int steps = 0; while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; ++steps; } return steps; }
__device__ __noinline__ double powers(double x, int n) { double y = 1; for (; n; n >>= 1, x *= x) if (n & 1) y *= x; return y; }

extern "C" __global__ void calls(Point* points, int* steps, double* out) {
    int i = threadIdx.x, count = 0;
    float by[2] = {float(i), 0.5f};
    Point p = points[i];
    for (int round = 0; round < i % 3 + 1; ++round) p = moved(p, by, &count);
    points[i] = p;
    steps[i] = collatz(i + 1) * 100 + count;
    if (i % 2) out[i] = powers(1.0 + i / 64.0, i);
}

extern "C" __global__ void switched(const int* what, float* values) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = values[i];
    switch (what[i]) {
        case 0: v = v + 1; break;
        case 1: v = v * v; // falls through
        case 2: v = v - 3; break;
        case 3: v = sqrtf(fabsf(v)); break;
        case 4: return;
        case 5: v = v < 0 ? -1.0f : 1.0f; break;
        case 6: for (int k = 0; k < i; ++k) v += 0.5f; break;
        case 7: v = __int_as_float(__float_as_int(v) ^ 0x80000000); break;
        default: v = what[i];
    }
    values[i] = v;
}

extern "C" __global__ void local_arrays(const uint8_t* bytes, int* out, int length) {
    int histogram[16] = {}, order[16];
    for (int i = 0; i < length; ++i) histogram[bytes[threadIdx.x * length + i] & 15]++;
    for (int i = 0; i < 16; ++i) order[i] = i;
    for (int i = 1; i < 16; ++i)
        for (int j = i; j > 0 && histogram[order[j]] > histogram[order[j - 1]]; --j) { int t = order[j]; order[j] = order[j - 1]; order[j - 1] = t; }
    for (int i = 0; i < 16; ++i) out[threadIdx.x * 16 + i] = order[i] * 1000 + histogram[order[i]];
}

extern "C" __global__ void single_maths(const float* x, float* out, int n) {
    int i = threadIdx.x;
    float v = x[i];
    float results[] = {sinf(v), cosf(v), tanf(v), expf(v), exp2f(v), logf(fabsf(v)), log1pf(fabsf(v)), powf(fabsf(v), 1.7f), sqrtf(fabsf(v)), rsqrtf(fabsf(v)),
                       tanhf(v), erff(v), atan2f(v, 2.0f), cbrtf(v), floorf(v), rintf(v), truncf(v), fmodf(v, 0.7f), 1.0f / v, v / 3.0f,
                       fmaf(v, v, v), __fdividef(v, 3.0f), hypotf(v, 2.0f), ldexpf(v, 3), copysignf(2.0f, v), __saturatef(v), fdimf(v, 1.0f)};
    for (int k = 0; k < int(sizeof results / 4); ++k) out[k * n + i] = results[k];
}

extern "C" __global__ void double_maths(const double* x, double* out, int n) {
    int i = threadIdx.x;
    double v = x[i];
    double results[] = {sin(v), cos(v), exp(v), log(fabs(v)), pow(fabs(v), 1.7), sqrt(fabs(v)), 1.0 / v, v / 3.0, fma(v, v, v), floor(v), rint(v), atan(v), tanh(v),
                        double(float(v)), double(int(v)), double((long long)(v * 1e12)), fmod(v, 0.7), rsqrt(fabs(v)), cbrt(v), erf(v)};
    for (int k = 0; k < int(sizeof results / 8); ++k) out[k * n + i] = results[k];
}

extern "C" __global__ void integers(const int64_t* x, const int64_t* y, int64_t* out, int n) {
    int i = threadIdx.x;
    int64_t a = x[i], b = y[i];
    uint64_t ua = a, ub = b;
    uint32_t na = ua, nb = ub;
    int64_t results[] = {a / b, a % b, int64_t(ua / ub), int64_t(ua % ub), __mul64hi(a, b), int64_t(__umul64hi(ua, ub)), a >> (b & 63), int64_t(ua >> (b & 63)), a << (b & 63),
                         __popcll(ua), __clzll(a), __ffsll(a), int64_t(__brevll(ua)), int32_t(na) / int32_t(nb | 1), na % (nb | 1), __popc(na), __clz(na), int64_t(__brev(na)),
                         __byte_perm(na, nb, 0x3526), __funnelshift_l(na, nb, i), __funnelshift_rc(na, nb, i), __mulhi(int(na), int(nb)), __umulhi(na, nb), __sad(int(na), int(nb), 7u),
                         __dp4a(int(na), int(nb), 5), __vadd4(na, nb), __vmaxs2(na, nb), int16_t(na) * int16_t(nb), int64_t(uint8_t(na)), int64_t(int8_t(nb)), min(a, b), max(ua, ub) == ua,
                         __rhadd(int(na), int(nb)), abs(int(na)), __vabsdiffu4(na, nb)};
    for (int k = 0; k < int(sizeof results / 8); ++k) out[k * n + i] = results[k];
}

extern "C" __global__ void halves(const __half2* x, const __half2* y, __half2* out, int n) {
    int i = threadIdx.x;
    __half2 a = x[i], b = y[i];
    __half2 results[] = {__hadd2(a, b), __hsub2(a, b), __hmul2(a, b), __hfma2(a, b, a), __hneg2(a), __habs2(a), __hmax2(a, b), __hmin2(a, b), h2exp2(a), h2sqrt(__habs2(b)),
                         __h2div(a, b), __lowhigh2highlow(a), __hgt2(a, b), __hfma2_relu(a, b, a), __hadd2_sat(a, b), h2rint(a), __floats2half2_rn(__low2float(a), __high2float(b))};
    for (int k = 0; k < int(sizeof results / 4); ++k) out[k * n + i] = results[k];
}

extern "C" __global__ void brain_halves(const __nv_bfloat162* x, const __nv_bfloat162* y, __nv_bfloat162* out, int n) {
    int i = threadIdx.x;
    __nv_bfloat162 a = x[i], b = y[i];
    __nv_bfloat162 results[] = {__hadd2(a, b), __hsub2(a, b), __hmul2(a, b), __hfma2(a, b, a), __hneg2(a), __habs2(a), __hmax2(a, b), __hmin2(a, b), __h2div(a, b), __hgt2(a, b)};
    for (int k = 0; k < int(sizeof results / 4); ++k) out[k * n + i] = results[k];
}

extern "C" __global__ void warps(const int* x, int* out, int n) {
    int i = threadIdx.x, v = x[i], lane = i % 32;
    int results[] = {int(__ballot_sync(~0u, v > 0)), __any_sync(~0u, v > 90), __all_sync(~0u, v > -200), int(__match_any_sync(~0u, v & 3)), __shfl_up_sync(~0u, v, 3),
                     __shfl_down_sync(~0u, v, 5, 16), __shfl_xor_sync(~0u, v, 9), __shfl_sync(~0u, v, v & 31), __reduce_add_sync(~0u, v), __reduce_max_sync(~0u, v),
                     int(__reduce_xor_sync(~0u, unsigned(v))), int(__activemask()), 0, 0};
    if (v > 0) { // some lanes only
        unsigned here = __activemask();
        results[12] = __reduce_add_sync(here, v);
        results[13] = __shfl_sync(here, v, __ffs(here) - 1) + lane;
    }
    for (int k = 0; k < int(sizeof results / 4); ++k) out[k * n + i] = results[k];
}

__constant__ float coefficients[5] = {0.5f, -1.25f, 2.0f, 0.125f, -0.75f};
__device__ const short lookup[2][4] = {{1, -2, 3, -4}, {50, 60, -70, 80}};
__device__ int visits[4];
struct __align__(16) Options { long long base; int which[3]; short small; bool negate; double factor; };

extern "C" __global__ void tables(const Options options, float* out) {
    float x = threadIdx.x * 0.25f, y = 0;
    for (int power = 4; power >= 0; --power) y = y * x + coefficients[power];
    y += lookup[options.which[1]][threadIdx.x & 3] + options.base + options.small;
    out[threadIdx.x] = options.negate ? -y * float(options.factor) : y;
    atomicAdd(visits + options.which[threadIdx.x % 3], 1);
    __syncthreads();
    if (threadIdx.x < 4) out[blockDim.x + threadIdx.x] = visits[threadIdx.x];
}
