// Numerical kernels, predicted before they ran: nvcc -ptx -arch=sm_90a -std=c++17 numerics.cu -o numerics.ptx
#include <cuda_runtime.h>

// A Fourier transform of 1024 complex numbers for each CTA of 256 threads, radix 4, in shared memory.
extern "C" __global__ void fourier(const float2* x, float2* y) {
    __shared__ float2 held[2][1024];
    const float2* row = x + blockIdx.x * 1024;
    for (int i = 0; i < 4; ++i) held[0][threadIdx.x + 256 * i] = row[threadIdx.x + 256 * i];
    int from = 0;
#pragma unroll 1
    for (int span = 1; span < 1024; span *= 4) {
        __syncthreads();
        int k = threadIdx.x & (span - 1);
        float2 v[4];
        for (int i = 0; i < 4; ++i) {
            float s, c;
            __sincosf(-6.2831853f * i * k / (4 * span), &s, &c);
            float2 a = held[from][threadIdx.x + 256 * i];
            v[i] = make_float2(a.x * c - a.y * s, a.x * s + a.y * c);
        }
        float2 p = make_float2(v[0].x + v[2].x, v[0].y + v[2].y), q = make_float2(v[0].x - v[2].x, v[0].y - v[2].y);
        float2 r = make_float2(v[1].x + v[3].x, v[1].y + v[3].y), t = make_float2(v[1].y - v[3].y, v[3].x - v[1].x);
        int place = (threadIdx.x - k) * 4 + k;
        held[1 - from][place] = make_float2(p.x + r.x, p.y + r.y);
        held[1 - from][place + span] = make_float2(q.x + t.x, q.y + t.y);
        held[1 - from][place + 2 * span] = make_float2(p.x - r.x, p.y - r.y);
        held[1 - from][place + 3 * span] = make_float2(q.x - t.x, q.y - t.y);
        from = 1 - from;
    }
    __syncthreads();
    for (int i = 0; i < 4; ++i) y[blockIdx.x * 1024 + threadIdx.x + 256 * i] = held[from][threadIdx.x + 256 * i];
}

// The attraction of all bodies on each one: a thread for each body, 256 others at a time in shared memory.
extern "C" __global__ void bodies(const float4* x, float4* y, int count) {
    __shared__ float4 held[256];
    float4 me = x[blockIdx.x * 256 + threadIdx.x];
    float ax = 0, ay = 0, az = 0;
    for (int first = 0; first < count; first += 256) {
        held[threadIdx.x] = x[first + threadIdx.x];
        __syncthreads();
#pragma unroll 8
        for (int i = 0; i < 256; ++i) {
            float4 other = held[i];
            float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
            float near = rsqrtf(dx * dx + dy * dy + dz * dz + 0.01f);
            float by = other.w * near * near * near;
            ax += dx * by; ay += dy * by; az += dz * by;
        }
        __syncthreads();
    }
    y[blockIdx.x * 256 + threadIdx.x] = make_float4(ax, ay, az, me.w);
}

// Shortest paths of one more step: the least sum over k, tiles of 64 x 64, 16 deep, 4 x 4 for each of 256 threads.
extern "C" __global__ void least_sums(const float* a, const float* b, float* c, int size) {
    __shared__ float left[16][68], right[16][64];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    float least[4][4];
    for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) least[i][j] = 1e30f;
    for (int k = 0; k < size; k += 16) {
        for (int i = 0; i < 4; ++i) {
            left[tx][ty + 16 * i] = a[(blockIdx.y * 64 + ty + 16 * i) * size + k + tx];
            right[ty][tx + 16 * i] = b[(k + ty) * size + blockIdx.x * 64 + tx + 16 * i];
        }
        __syncthreads();
#pragma unroll
        for (int inner = 0; inner < 16; ++inner) {
            float one[4], two[4];
            for (int i = 0; i < 4; ++i) one[i] = left[inner][ty * 4 + i], two[i] = right[inner][tx * 4 + i];
            for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) least[i][j] = fminf(least[i][j], one[i] + two[j]);
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) c[(blockIdx.y * 64 + ty * 4 + i) * size + blockIdx.x * 64 + tx * 4 + j] = least[i][j];
}

// Local alignment of two sequences for each warp: 32 rows at a time, a lane each; neighbours pass scores by shuffles.
extern "C" __global__ void aligned(const int* rows, const int* columns, int* best, int stripes, int length) {
    extern __shared__ int border[];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, pair = blockIdx.x * (blockDim.x / 32) + warp, most = 0;
    int* edge = border + warp * length;
    for (int i = lane; i < length; i += 32) edge[i] = 0;
    for (int stripe = 0; stripe < stripes; ++stripe) {
        __syncwarp();
        int mine = rows[(pair * stripes + stripe) * 32 + lane] & 3, corner = 0, left = 0;
#pragma unroll 1
        for (int step = 0; step < length + 31; ++step) {
            int column = step - lane;
            bool inside = column >= 0 && column < length;
            int up = __shfl_up_sync(0xffffffffu, left, 1);
            if (lane == 0 && inside) up = edge[column];
            int letter = inside ? columns[column] & 3 : 0;
            int score = max(max(corner + (letter == mine ? 2 : -1), 0), max(up - 1, left - 1));
            __syncwarp();
            corner = up;
            if (inside) { left = score; most = max(most, score); if (lane == 31) edge[column] = score; }
        }
    }
    most = __reduce_max_sync(0xffffffffu, most);
    if (lane == 0) best[pair] = most;
}

// A sparse matrix times a vector: a warp for each row of `each` entries, whose columns are anywhere.
extern "C" __global__ void sparse_rows(const float* values, const int* columns, const float* x, float* y, int each) {
    long row = (long)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, first = row * each;
    float sum = 0;
    for (int i = threadIdx.x % 32; i < each; i += 32) sum += values[first + i] * x[columns[first + i]];
    for (int by = 16; by; by /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, by);
    if (threadIdx.x % 32 == 0) y[row] = sum;
}
