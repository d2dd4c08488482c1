// Kernels for the clock to predict before they run: nvcc -ptx -arch=sm_90a -std=c++17 more.cu -o more.ptx
#include <cuda_fp16.h>

// European call options by Black and Scholes: exponentials, logarithms, quotients, roots.
extern "C" __global__ void options(const float* price, const float* strike, const float* years, float* call, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float s = fabsf(price[i]) + 1.0f, x = fabsf(strike[i]) + 1.0f, t = fabsf(years[i]) + 0.1f;
    float root = 0.3f * sqrtf(t), d1 = (__logf(s / x) + 0.065f * t) / root, d2 = d1 - root;
    call[i] = s * normcdff(d1) - x * __expf(-0.02f * t) * normcdff(d2);
}

// Forces of bodies on each other, a tile of 256 bodies in shared memory at a time.
extern "C" __global__ void __launch_bounds__(256) bodies(const float4* at, float4* force, int n) {
    __shared__ float4 tile[256];
    float4 mine = at[blockIdx.x * 256 + threadIdx.x], sum = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int first = 0; first < n; first += 256) {
        tile[threadIdx.x] = at[first + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int j = 0; j < 256; ++j) {
            float4 other = tile[j];
            float dx = other.x - mine.x, dy = other.y - mine.y, dz = other.z - mine.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f), weight = other.w * inverse * inverse * inverse;
            sum.x += dx * weight;
            sum.y += dy * weight;
            sum.z += dz * weight;
        }
        __syncthreads();
    }
    force[blockIdx.x * 256 + threadIdx.x] = sum;
}

// f32 product, 128 x 128 by 256 threads, eight by eight sums a thread, tiles of k in two stages by way of registers.
extern "C" __global__ void __launch_bounds__(256) register_tiles(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[2][8][128 + 4], right[2][8][128];
    int thread = threadIdx.x, across = thread % 16, down = thread / 16;
    const float* from_a = a + (blockIdx.y * 128 + thread / 2) * k + thread % 2 * 4;
    const float* from_b = b + thread / 32 * n + blockIdx.x * 128 + thread % 32 * 4;
    float sum[8][8] = {};
    float4 one = *reinterpret_cast<const float4*>(from_a), two = *reinterpret_cast<const float4*>(from_b);
    for (int step = 0; step < k / 8; ++step) {
        int stage = step & 1;
        left[stage][thread % 2 * 4 + 0][thread / 2] = one.x;
        left[stage][thread % 2 * 4 + 1][thread / 2] = one.y;
        left[stage][thread % 2 * 4 + 2][thread / 2] = one.z;
        left[stage][thread % 2 * 4 + 3][thread / 2] = one.w;
        *reinterpret_cast<float4*>(&right[stage][thread / 32][thread % 32 * 4]) = two;
        __syncthreads();
        if (step + 1 < k / 8) {
            one = *reinterpret_cast<const float4*>(from_a + (step + 1) * 8);
            two = *reinterpret_cast<const float4*>(from_b + (step + 1) * 8 * n);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            float x[8], y[8];
            for (int j = 0; j < 8; ++j) x[j] = left[stage][i][down * 4 + j % 4 + j / 4 * 64];
            for (int j = 0; j < 8; ++j) y[j] = right[stage][i][across * 4 + j % 4 + j / 4 * 64];
            for (int p = 0; p < 8; ++p)
                for (int q = 0; q < 8; ++q) sum[p][q] += x[p] * y[q];
        }
    }
    for (int p = 0; p < 8; ++p)
        for (int q = 0; q < 8; q += 4) {
            int row = blockIdx.y * 128 + down * 4 + p % 4 + p / 4 * 64, column = blockIdx.x * 128 + across * 4 + q / 4 * 64;
            *reinterpret_cast<float4*>(c + row * n + column) = make_float4(sum[p][q], sum[p][q + 1], sum[p][q + 2], sum[p][q + 3]);
        }
}

// Seven points in three dimensions, a thread walks up a column of planes.
extern "C" __global__ void seven_points(const float* x, float* y, int nx, int ny, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;
    long plane = static_cast<long>(nx) * ny, at = static_cast<long>(j) * nx + i;
    float below = x[at], here = x[at + plane];
    for (int k = 1; k < nz - 1; ++k) {
        at += plane;
        float above = x[at + plane];
        y[at] = 0.4f * here + 0.1f * (below + above + x[at - 1] + x[at + 1] + x[at - nx] + x[at + nx]);
        below = here;
        here = above;
    }
}

// Sums of f16 rows by blocks: shuffles, shared memory, one atomic addition a block.
extern "C" __global__ void dot_product(const __half2* a, const __half2* b, float* out, int n) {
    __shared__ float partial[8];
    float sum = 0.f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float2 x = __half22float2(a[i]), y = __half22float2(b[i]);
        sum += x.x * y.x + x.y * y.y;
    }
    for (int distance = 16; distance; distance /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 8) {
        sum = partial[threadIdx.x];
        for (int distance = 4; distance; distance /= 2) sum += __shfl_xor_sync(0xffu, sum, distance);
        if (threadIdx.x == 0) atomicAdd(out, sum);
    }
}

// Bytes of two images to grey by integer weights.
extern "C" __global__ void grey(const uchar4* picture, unsigned char* out, int n) {
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i >= n) return;
    for (int j = 0; j < 4; ++j) {
        uchar4 pixel = picture[i + j];
        out[i + j] = static_cast<unsigned char>((pixel.x * 77 + pixel.y * 150 + pixel.z * 29) >> 8);
    }
}
