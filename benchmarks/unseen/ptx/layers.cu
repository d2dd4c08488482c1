// Layers of models for the clock to predict before they run: nvcc -ptx -arch=sm_90a -std=c++17 layers.cu -o layers.ptx
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__device__ float warp_sum(float value) {
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

__device__ float cta_sum(float value, float* partial) {
    value = warp_sum(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = threadIdx.x % 32 < blockDim.x / 32 ? partial[threadIdx.x % 32] : 0.f;
    return warp_sum(sum);
}

// AdamW, all in one pass; four elements per thread.
extern "C" __global__ void adamw(const float4* p, const float4* g, const float4* m, const float4* v, float4* q, float4* n,
                                 float4* w, float rate, float decay, float first, float second) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    float4 value = p[at], slope = g[at], mean = m[at], square = v[at];
    float* x = &value.x;
    float *d = &slope.x, *a = &mean.x, *b = &square.x;
    for (int i = 0; i < 4; ++i) {
        a[i] = 0.9f * a[i] + 0.1f * d[i];
        b[i] = 0.999f * fabsf(b[i]) + 0.001f * d[i] * d[i];
        x[i] = x[i] * (1.f - rate * decay) - rate * (a[i] * first) / (sqrtf(b[i] * second) + 1e-8f);
    }
    q[at] = value, n[at] = mean, w[at] = square;
}

// Group norm of bf16: a CTA per group of `size` elements; it reads the group twice.
extern "C" __global__ void group_norm(const uint4* x, const float* weight, uint4* y, int size, int groups) {
    __shared__ float partial[32];
    const uint4* mine = x + (size_t)blockIdx.x * (size / 8);
    float sum = 0.f, squares = 0.f;
    for (int at = threadIdx.x; at < size / 8; at += blockDim.x) {
        uint4 eight = mine[at];
        const __nv_bfloat162* pairs = reinterpret_cast<const __nv_bfloat162*>(&eight);
        for (int i = 0; i < 4; ++i) {
            float2 one = __bfloat1622float2(pairs[i]);
            sum += one.x + one.y;
            squares += one.x * one.x + one.y * one.y;
        }
    }
    sum = cta_sum(sum, partial), squares = cta_sum(squares, partial);
    float mean = sum / size, scale = rsqrtf(squares / size - mean * mean + 1e-5f) * weight[blockIdx.x % groups];
    for (int at = threadIdx.x; at < size / 8; at += blockDim.x) {
        uint4 eight = mine[at];
        __nv_bfloat162* pairs = reinterpret_cast<__nv_bfloat162*>(&eight);
        for (int i = 0; i < 4; ++i) {
            float2 one = __bfloat1622float2(pairs[i]);
            pairs[i] = __floats2bfloat162_rn((one.x - mean) * scale, (one.y - mean) * scale);
        }
        y[(size_t)blockIdx.x * (size / 8) + at] = eight;
    }
}

// y = silu(gate) up, bf16, eight elements per thread.
extern "C" __global__ void gated(const uint4* gate, const uint4* up, uint4* y) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 one = gate[at], other = up[at];
    __nv_bfloat162 *a = reinterpret_cast<__nv_bfloat162*>(&one), *b = reinterpret_cast<__nv_bfloat162*>(&other);
    for (int i = 0; i < 4; ++i) {
        float2 x = __bfloat1622float2(a[i]), z = __bfloat1622float2(b[i]);
        a[i] = __floats2bfloat162_rn(x.x / (1.f + __expf(-x.x)) * z.x, x.y / (1.f + __expf(-x.y)) * z.y);
    }
    y[at] = one;
}

// y = rms norm of (x + residual), the sum is kept; rows of `columns` bf16, a CTA of columns / 8 threads per row.
extern "C" __global__ void added_norm(const uint4* x, const uint4* residual, const uint4* weight, uint4* y, uint4* kept,
                                      int columns) {
    __shared__ float partial[32];
    size_t at = (size_t)blockIdx.x * (columns / 8) + threadIdx.x;
    uint4 one = x[at], other = residual[at];
    __nv_bfloat162 *a = reinterpret_cast<__nv_bfloat162*>(&one), *b = reinterpret_cast<__nv_bfloat162*>(&other);
    float squares = 0.f;
    for (int i = 0; i < 4; ++i) {
        a[i] = __hadd2(a[i], b[i]);
        float2 v = __bfloat1622float2(a[i]);
        squares += v.x * v.x + v.y * v.y;
    }
    kept[at] = one;
    float scale = rsqrtf(cta_sum(squares, partial) / columns + 1e-6f);
    uint4 w = weight[threadIdx.x];
    __nv_bfloat162* c = reinterpret_cast<__nv_bfloat162*>(&w);
    for (int i = 0; i < 4; ++i) {
        float2 v = __bfloat1622float2(a[i]), f = __bfloat1622float2(c[i]);
        a[i] = __floats2bfloat162_rn(v.x * scale * f.x, v.y * scale * f.y);
    }
    y[at] = one;
}

// y = A x, A in e4m3, x in half: two rows per warp, 16 bytes per lane.
extern "C" __global__ void bytes_times_vector(const uint4* a, const uint4* x, float* y, int k) {
    int lane = threadIdx.x % 32, row = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 2;
    float sum[2] = {0.f, 0.f};
    for (int at = lane; at < k / 16; at += 32) {
        uint4 low = x[2 * at], high = x[2 * at + 1];
        const __half2* v[2] = {reinterpret_cast<const __half2*>(&low), reinterpret_cast<const __half2*>(&high)};
        for (int r = 0; r < 2; ++r) {
            uint4 sixteen = a[(size_t)(row + r) * (k / 16) + at];
            const __nv_fp8x2_storage_t* pairs = reinterpret_cast<const __nv_fp8x2_storage_t*>(&sixteen);
            __half2 total = __float2half2_rn(0.f);
            for (int i = 0; i < 8; ++i)
                total = __hfma2(__half2(__nv_cvt_fp8x2_to_halfraw2(pairs[i], __NV_E4M3)), v[i / 4][i % 4], total);
            sum[r] += __low2float(total) + __high2float(total);
        }
    }
    for (int r = 0; r < 2; ++r) {
        sum[r] = warp_sum(sum[r]);
        if (lane == 0) y[row + r] = sum[r];
    }
}

// One query against a cache of keys and values of 128 halves: a warp takes every fourth key of its CTA's part; what the
// parts found is left for another kernel.
extern "C" __global__ void decoded(const uint2* q, const uint2* k, const uint2* v, float* out, float* sums, int length) {
    __shared__ float partial[4][128], totals[4], most[4];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = length / gridDim.x;
    size_t head = blockIdx.y;
    uint2 mine = q[head * 32 + lane];
    float2 q0 = __half22float2(*reinterpret_cast<__half2*>(&mine.x)), q1 = __half22float2(*reinterpret_cast<__half2*>(&mine.y));
    float largest = -1e30f, total = 0.f, o[4] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll 4
    for (int at = blockIdx.x * part + warp; at < (blockIdx.x + 1) * part; at += 4) {
        uint2 key = k[(head * length + at) * 32 + lane], value = v[(head * length + at) * 32 + lane];
        float2 k0 = __half22float2(*reinterpret_cast<__half2*>(&key.x)), k1 = __half22float2(*reinterpret_cast<__half2*>(&key.y));
        float score = warp_sum(q0.x * k0.x + q0.y * k0.y + q1.x * k1.x + q1.y * k1.y) * 0.1275f;
        float higher = fmaxf(largest, score), shrink = exp2f(largest - higher), p = exp2f(score - higher);
        float2 v0 = __half22float2(*reinterpret_cast<__half2*>(&value.x)), v1 = __half22float2(*reinterpret_cast<__half2*>(&value.y));
        o[0] = o[0] * shrink + p * v0.x, o[1] = o[1] * shrink + p * v0.y;
        o[2] = o[2] * shrink + p * v1.x, o[3] = o[3] * shrink + p * v1.y;
        total = total * shrink + p, largest = higher;
    }
    for (int i = 0; i < 4; ++i) partial[warp][lane * 4 + i] = o[i];
    if (lane == 0) totals[warp] = total, most[warp] = largest;
    __syncthreads();
    float top = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])), made = 0.f, all = 0.f;
    for (int i = 0; i < 4; ++i) {
        float factor = exp2f(most[i] - top);
        made += partial[i][threadIdx.x] * factor, all += totals[i] * factor;
    }
    out[(head * gridDim.x + blockIdx.x) * 128 + threadIdx.x] = made;
    if (threadIdx.x == 0) sums[head * gridDim.x + blockIdx.x] = all;
}

// The eight largest of each row of 1024, one warp per row: the maximum, eight times.
extern "C" __global__ void top_eight(const float* x, float* y, int* where) {
    int lane = threadIdx.x % 32, row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    float mine[32];
    for (int i = 0; i < 32; ++i) mine[i] = x[(size_t)row * 1024 + i * 32 + lane];
    for (int turn = 0; turn < 8; ++turn) {
        float best = mine[0];
        int at = 0;
        for (int i = 1; i < 32; ++i) at = mine[i] > best ? i : at, best = fmaxf(best, mine[i]);
        int place = at * 32 + lane;
        for (int distance = 16; distance; distance /= 2) {
            float other = __shfl_xor_sync(0xffffffffu, best, distance);
            int there = __shfl_xor_sync(0xffffffffu, place, distance);
            bool take = other > best || (other == best && there < place);
            best = take ? other : best, place = take ? there : place;
        }
        for (int i = 0; i < 32; ++i) mine[i] = place == i * 32 + lane ? -INFINITY : mine[i];
        if (lane == 0) y[row * 8 + turn] = best, where[row * 8 + turn] = place;
    }
}

// A recurrence h = a h + b x with a gate of exponentials, one thread per channel, `length` steps.
extern "C" __global__ void selective_scan(const float* x, const float* step, const float* decay, float* y, int length, int channels) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    float rate = -fabsf(decay[channel % channels]), h = 0.f;
    size_t at = (size_t)(channel / channels) * length * channels + channel % channels;
#pragma unroll 8
    for (int t = 0; t < length; ++t, at += channels) {
        float d = fabsf(step[at]);
        h = __expf(d * rate) * h + d * x[at];
        y[at] = h * __fdividef(1.f, 1.f + __expf(-h));
    }
}

// 3 x 3 convolution of 32 channels, channels last, f32: a CTA makes 8 x 8 points of 32 channels.
extern "C" __global__ void convolution(const float* x, const float* w, float* y, int side) {
    __shared__ float piece[10][10][33], weights[32][33];
    int left = blockIdx.x * 8, top = blockIdx.y * 8, image = blockIdx.z, channel = threadIdx.x % 32, group = threadIdx.x / 32;
    for (int at = group; at < 100; at += 8) {
        int row = top + at / 10 - 1, column = left + at % 10 - 1;
        bool inside = row >= 0 && row < side && column >= 0 && column < side;
        piece[at / 10][at % 10][channel] = inside ? x[((size_t)(image * side + row) * side + column) * 32 + channel] : 0.f;
    }
    float sums[8] = {};
    for (int tap = 0; tap < 9; ++tap) {
        __syncthreads();
        for (int from = group; from < 32; from += 8) weights[from][channel] = w[(tap * 32 + from) * 32 + channel];
        __syncthreads();
#pragma unroll 4
        for (int from = 0; from < 32; ++from)
            for (int i = 0; i < 8; ++i) sums[i] += piece[group + tap / 3][i + tap % 3][from] * weights[from][channel];
    }
    for (int i = 0; i < 8; ++i) y[((size_t)(image * side + top + group) * side + left + i) * 32 + channel] = sums[i];
}

// Sums of 16 rows each of a table, whose rows an index names: a warp per sum, rows of 128 f32.
extern "C" __global__ void bags(const float4* table, const int* index, float4* y) {
    int lane = threadIdx.x % 32, bag = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
#pragma unroll 4
    for (int i = 0; i < 16; ++i) {
        float4 one = table[(size_t)index[bag * 16 + i] * 32 + lane];
        sum.x += one.x, sum.y += one.y, sum.z += one.z, sum.w += one.w;
    }
    y[(size_t)bag * 32 + lane] = sum;
}

// [batch, length, heads, 64] to [batch, heads, length, 64], 16 bytes per thread.
extern "C" __global__ void heads_first(const uint4* x, uint4* y, int length, int heads) {
    int at = blockIdx.x * blockDim.x + threadIdx.x, chunk = at % 8, head = at / 8 % heads, token = at / 8 / heads;
    y[((size_t)(token / length * heads + head) * length + token % length) * 8 + chunk] = x[at];
}

// C[b] = A[b] B[b], 32 x 32 f32, a CTA of 256 threads per product.
extern "C" __global__ void small_products(const float* a, const float* b, float* c) {
    __shared__ float left[32][32], right[32][32];
    size_t first = (size_t)blockIdx.x * 1024;
    int x = threadIdx.x % 32, y = threadIdx.x / 32;
    for (int i = 0; i < 4; ++i) {
        left[y + 8 * i][x] = a[first + threadIdx.x + 256 * i];
        right[y + 8 * i][x] = b[first + threadIdx.x + 256 * i];
    }
    __syncthreads();
    float sums[4] = {};
#pragma unroll
    for (int k = 0; k < 32; ++k)
        for (int i = 0; i < 4; ++i) sums[i] += left[y + 8 * i][k] * right[k][x];
    for (int i = 0; i < 4; ++i) c[first + threadIdx.x + 256 * i] = sums[i];
}
