// Common operators for the clock to predict before they run: nvcc -ptx -arch=sm_90a -std=c++17 common.cu -o common.ptx
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__device__ float warp_sum(float value) {
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

// y = A x, A sparse with `each` elements per row; one warp per row.
extern "C" __global__ void sparse_rows(const int* column, const float* value, const float* x, float* y, int rows, int each) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.f;
    for (int at = row * each + lane; at < (row + 1) * each; at += 32) sum += value[at] * x[column[at]];
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

// Sums and sums of squares of columns; a CTA takes 32 columns and every 64th piece of rows.
extern "C" __global__ void column_statistics(const float* x, float* sums, float* squares, int rows, int columns) {
    __shared__ float partial[2][8][32];
    int column = blockIdx.x * 32 + threadIdx.x;
    float sum = 0.f, square = 0.f;
    for (int row = blockIdx.y * 8 + threadIdx.y; row < rows; row += 8 * gridDim.y) {
        float one = x[row * columns + column];
        sum += one;
        square += one * one;
    }
    partial[0][threadIdx.y][threadIdx.x] = sum;
    partial[1][threadIdx.y][threadIdx.x] = square;
    __syncthreads();
    if (threadIdx.y < 2) {
        float total = 0.f;
        for (int i = 0; i < 8; ++i) total += partial[threadIdx.y][i][threadIdx.x];
        atomicAdd((threadIdx.y ? squares : sums) + column, total);
    }
}

// Dot product of doubles: a loop that strides over the grid, shuffles, an atomic addition by each warp.
extern "C" __global__ void dot_of_doubles(const double* x, const double* y, double* out, int n) {
    double sum = 0.0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += x[i] * y[i];
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}

// Counts of bytes, one histogram per CTA in shared memory.
extern "C" __global__ void byte_histogram(const uint4* x, unsigned* out, int n) {
    __shared__ unsigned count[256];
    count[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        uint4 four = x[i];
        unsigned words[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int shift = 0; shift < 32; shift += 8) atomicAdd(count + (words[j] >> shift & 255), 1u);
    }
    __syncthreads();
    atomicAdd(out + threadIdx.x, count[threadIdx.x]);
}

// Four steps of a five-point stencil on a tile of 32 x 32 in shared memory; borders of tiles are kept.
extern "C" __global__ void __launch_bounds__(256) heat(const float* x, float* y, int width) {
    __shared__ float tile[2][34][34];
    int left = blockIdx.x * 32, top = blockIdx.y * 32, thread = threadIdx.y * 32 + threadIdx.x;
    for (int i = thread; i < 34 * 34; i += 256) {
        int row = min(max(top + i / 34 - 1, 0), width - 1), column = min(max(left + i % 34 - 1, 0), width - 1);
        tile[0][i / 34][i % 34] = tile[1][i / 34][i % 34] = x[row * width + column];
    }
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < 4; ++step) {
        float(*from)[34] = tile[step & 1], (*to)[34] = tile[step & 1 ^ 1];
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            int row = threadIdx.y + i + 1, column = threadIdx.x + 1;
            float here = from[row][column];
            float around = from[row - 1][column] + from[row + 1][column] + from[row][column - 1] + from[row][column + 1];
            to[row][column] = here + 0.2f * (around - 4.f * here);
        }
        __syncthreads();
    }
    for (int i = 0; i < 32; i += 8) y[(top + threadIdx.y + i) * width + left + threadIdx.x] = tile[0][threadIdx.y + i + 1][threadIdx.x + 1];
}

// Powers modulo a prime by Montgomery's products of 32-bit words.
extern "C" __global__ void modular_powers(const unsigned* x, unsigned* y, unsigned prime, unsigned inverse, int steps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned value = x[i], power = value;
#pragma unroll 4
    for (int step = 0; step < steps; ++step) {
        unsigned long long product = (unsigned long long)power * value;
        unsigned factor = (unsigned)product * inverse;
        unsigned long long sum = (unsigned long long)factor * prime + product;
        power = sum >> 32;
        if (power >= prime) power -= prime;
    }
    y[i] = power;
}

// Rounds of a hash of 32-bit words: additions, rotations, choices.
extern "C" __global__ void hash_rounds(const uint4* x, uint4* y, int rounds) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    uint4 s = x[i];
#pragma unroll 8
    for (int round = 0; round < rounds; ++round) {
        unsigned one = __funnelshift_r(s.x, s.x, 6) ^ __funnelshift_r(s.x, s.x, 11) ^ __funnelshift_r(s.x, s.x, 25);
        unsigned next = s.w + one + ((s.x & s.y) ^ (~s.x & s.z)) + 0x428a2f98u + round;
        s.w = s.z;
        s.z = s.y;
        s.y = s.x;
        s.x = next;
    }
    y[i] = s;
}

// Rows of bf16 to int8 by the largest magnitude of a row; one CTA per row of 4096.
extern "C" __global__ void __launch_bounds__(256) quantise_rows(const __nv_bfloat162* x, char2* y, float* scale) {
    __shared__ float partial[8];
    const __nv_bfloat162* row = x + blockIdx.x * 2048;
    float2 mine[8];
    float most = 0.f;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        mine[i] = __bfloat1622float2(row[threadIdx.x + i * 256]);
        most = fmaxf(most, fmaxf(fabsf(mine[i].x), fabsf(mine[i].y)));
    }
    for (int distance = 16; distance; distance /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = most;
    __syncthreads();
    for (int i = 0; i < 8; ++i) most = fmaxf(most, partial[i]);
    float factor = 127.f / fmaxf(most, 1e-8f);
#pragma unroll
    for (int i = 0; i < 8; ++i)
        y[blockIdx.x * 2048 + threadIdx.x + i * 256] = make_char2(__float2int_rn(mine[i].x * factor), __float2int_rn(mine[i].y * factor));
    if (threadIdx.x == 0) scale[blockIdx.x] = most / 127.f;
}

// Rotary embedding of heads of 128: pairs (i, i + 64), sines and cosines from a table per position.
extern "C" __global__ void rotary(const __half* x, const float2* table, __half* y, int heads) {
    int position = blockIdx.x, lane = threadIdx.x % 64;
    float2 turn = table[position * 64 + lane];
    for (int head = threadIdx.x / 64; head < heads; head += blockDim.x / 64) {
        int base = (position * heads + head) * 128 + lane;
        float one = __half2float(x[base]), other = __half2float(x[base + 64]);
        y[base] = __float2half(one * turn.x - other * turn.y);
        y[base + 64] = __float2half(one * turn.y + other * turn.x);
    }
}

// y = W x, W of 4 bits with a scale for each 128 of a row, x of halves; one warp per row.
extern "C" __global__ void four_bit_rows(const uint4* w, const __half* scale, const __half2* x, float* y, int k) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0.f;
    for (int at = lane; at < k / 32; at += 32) {
        uint4 four = w[row * (k / 32) + at];
        unsigned words[4] = {four.x, four.y, four.z, four.w};
        float factor = __half2float(scale[row * (k / 128) + at / 4]);
        float part = 0.f;
#pragma unroll
        for (int j = 0; j < 4; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float2 pair = __half22float2(x[at * 16 + j * 4 + i]);
                part += (float)((int)(words[j] >> (8 * i) & 15) - 8) * pair.x;
                part += (float)((int)(words[j] >> (8 * i + 4) & 15) - 8) * pair.y;
            }
        sum += part * factor;
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

// Causal convolution of four taps along a sequence, each channel by itself, and SiLU.
extern "C" __global__ void causal_taps(const float* x, const float4* taps, float* y, int length, int channels) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * 64;
    float4 w = taps[channel];
    float a = 0.f, b = 0.f, c = 0.f;
    if (first) {
        a = x[(first - 3) * channels + channel];
        b = x[(first - 2) * channels + channel];
        c = x[(first - 1) * channels + channel];
    }
#pragma unroll 8
    for (int i = 0; i < 64; ++i) {
        float d = x[(first + i) * channels + channel];
        float sum = w.x * a + w.y * b + w.z * c + w.w * d;
        y[(first + i) * channels + channel] = sum / (1.f + __expf(-sum));
        a = b;
        b = c;
        c = d;
    }
}

// Inclusive sums of pieces of 512 in shared memory, a barrier for each doubling of the distance.
extern "C" __global__ void doubling_scan(const float* x, float* y) {
    __shared__ float piece[2][512];
    int at = threadIdx.x, from = 0;
    piece[0][at] = x[blockIdx.x * 512 + at];
    __syncthreads();
    for (int distance = 1; distance < 512; distance *= 2) {
        piece[from ^ 1][at] = piece[from][at] + (at >= distance ? piece[from][at - distance] : 0.f);
        from ^= 1;
        __syncthreads();
    }
    y[blockIdx.x * 512 + at] = piece[from][at];
}

// Points of three coordinates each to three arrays, and their lengths.
extern "C" __global__ void apart(const float* points, float* x, float* y, float* z, float* length, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float a = points[3 * i], b = points[3 * i + 1], c = points[3 * i + 2];
    x[i] = a;
    y[i] = b;
    z[i] = c;
    length[i] = sqrtf(a * a + b * b + c * c);
}
