// Integer arithmetic and images, predicted before they ran: nvcc -ptx -arch=sm_90a -std=c++17 integers.cu -o integers.ptx
#include <cuda_runtime.h>
typedef unsigned int u32;
typedef unsigned long long u64;

__device__ u32 rotated(u32 x, int by) { return __funnelshift_l(x, x, by); }
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// MurmurHash3 of `words` words for each thread; neighbours read neighbouring words.
extern "C" __global__ void murmur(const u32* x, u32* y, int words) {
    u32 hash = INDEX, count = gridDim.x * blockDim.x;
    for (int i = 0; i < words; ++i) {
        u32 k = x[i * count + INDEX] * 0xcc9e2d51u;
        hash = rotated(hash ^ rotated(k, 15) * 0x1b873593u, 13) * 5 + 0xe6546b64u;
    }
    hash ^= hash >> 16; hash *= 0x85ebca6bu; hash ^= hash >> 13; hash *= 0xc2b2ae35u;
    y[INDEX] = hash ^ hash >> 16;
}

// Rounds of SHA-256's shape: rotations, choices, majorities, additions.
extern "C" __global__ void sigma_rounds(const u32* x, u32* y, int rounds) {
    u32 a = x[INDEX], b = a * 3, c = a ^ 7, d = a + 9, e = ~a, f = a << 3, g = a >> 5, h = a * 11;
    for (int i = 0; i < rounds; ++i) {
        u32 one = h + (rotated(e, 26) ^ rotated(e, 21) ^ rotated(e, 7)) + ((e & f) ^ (~e & g)) + i;
        u32 two = (rotated(a, 30) ^ rotated(a, 19) ^ rotated(a, 10)) + ((a & b) ^ (a & c) ^ (b & c));
        h = g; g = f; f = e; e = d + one; d = c; c = b; b = a; a = one + two;
    }
    y[INDEX] = a ^ b ^ c ^ d ^ e ^ f ^ g ^ h;
}

// ChaCha's quarter rounds on a block of 16 words for each thread.
extern "C" __global__ void chacha(const u32* x, u32* y, int rounds) {
    u32 s[16];
    for (int i = 0; i < 16; ++i) s[i] = x[INDEX] + i;
#define QUARTER(a, b, c, d) \
    a += b; d = rotated(d ^ a, 16); c += d; b = rotated(b ^ c, 12); a += b; d = rotated(d ^ a, 8); c += d; b = rotated(b ^ c, 7);
    for (int i = 0; i < rounds; ++i) {
        QUARTER(s[0], s[4], s[8], s[12]) QUARTER(s[1], s[5], s[9], s[13])
        QUARTER(s[2], s[6], s[10], s[14]) QUARTER(s[3], s[7], s[11], s[15])
        QUARTER(s[0], s[5], s[10], s[15]) QUARTER(s[1], s[6], s[11], s[12])
        QUARTER(s[2], s[7], s[8], s[13]) QUARTER(s[3], s[4], s[9], s[14])
    }
    u32 all = 0;
    for (int i = 0; i < 16; ++i) all ^= s[i];
    y[INDEX] = all;
}

// A linear congruential generator of 64 bits; the sum of its upper halves.
extern "C" __global__ void congruential(const u32* x, u32* y, int steps) {
    u64 state = x[INDEX];
    u32 sum = 0;
    for (int i = 0; i < steps; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        sum += (u32)(state >> 33);
    }
    y[INDEX] = sum;
}

// Two chains of xorshift, which need shifts and xor only.
extern "C" __global__ void xorshift(const u32* x, u32* y, int steps) {
    u32 a = x[INDEX] + 1, b = a * 77;
    for (int i = 0; i < steps; ++i) {
        a ^= a << 13; a ^= a >> 17; a ^= a << 5;
        b ^= b << 13; b ^= b >> 17; b ^= b << 5;
    }
    y[INDEX] = a + b;
}

// Montgomery products of 32-bit numbers: three multiplications and a choice a step.
extern "C" __global__ void montgomery(const u32* x, u32* y, u32 modulus, u32 inverse, int steps) {
    u32 a = x[INDEX] % modulus, b = a ^ 1;
    for (int i = 0; i < steps; ++i) {
        u64 product = (u64)a * b;
        u32 factor = (u32)product * inverse;
        u32 high = (u32)((product + (u64)factor * modulus) >> 32);
        b = high >= modulus ? high - modulus : high;
    }
    y[INDEX] = b;
}

// Morton codes of two coordinates.
extern "C" __global__ void morton(const u32* x, const u32* y, u32* code) {
    u32 both[2] = {x[INDEX], y[INDEX]};
    for (int i = 0; i < 2; ++i) {
        u32 v = both[i] & 0xffff;
        v = (v | v << 8) & 0x00ff00ff; v = (v | v << 4) & 0x0f0f0f0f;
        v = (v | v << 2) & 0x33333333; both[i] = (v | v << 1) & 0x55555555;
    }
    code[INDEX] = both[0] | both[1] << 1;
}

// Least Hamming distance of a thread's 4 words to `many` keys, which a CTA keeps in shared memory.
extern "C" __global__ void hamming(const u32* x, const u32* keys, u32* least, int many) {
    __shared__ u32 held[256 * 4];
    u32 mine[4], best = 1000;
    for (int i = 0; i < 4; ++i) mine[i] = x[INDEX * 4 + i];
    for (int first = 0; first < many; first += 256) {
        __syncthreads();
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) held[i] = keys[first * 4 + i];
        __syncthreads();
        for (int key = 0; key < 256; ++key) {
            u32 bits = 0;
            for (int i = 0; i < 4; ++i) bits += __popc(mine[i] ^ held[key * 4 + i]);
            best = min(best, bits);
        }
    }
    least[INDEX] = best;
}

// CRC-32 of `words` words by a table in shared memory, a byte at a time.
extern "C" __global__ void crc_by_table(const u32* x, const u32* table, u32* y, int words) {
    __shared__ u32 held[256];
    held[threadIdx.x] = table[threadIdx.x];
    __syncthreads();
    u32 crc = ~0u, count = gridDim.x * blockDim.x;
    for (int i = 0; i < words; ++i) {
        u32 word = x[i * count + INDEX];
        for (int byte = 0; byte < 4; ++byte) crc = held[(crc ^ word >> 8 * byte) & 255] ^ crc >> 8;
    }
    y[INDEX] = ~crc;
}

// Mandelbrot's iteration, a fixed number of times.
extern "C" __global__ void mandelbrot(const float* re, const float* im, float* y, int steps) {
    float cr = re[INDEX], ci = im[INDEX], r = 0.f, i = 0.f, count = 0.f;
    for (int step = 0; step < steps; ++step) {
        float rr = r * r, ii = i * i;
        i = 2.f * r * i + ci;
        r = rr - ii + cr;
        count += rr + ii < 4.f ? 1.f : 0.f;
    }
    y[INDEX] = count;
}

// The median of nine pixels, by a network of minima and maxima.
__device__ void sort(float& a, float& b) { float low = fminf(a, b); b = fmaxf(a, b); a = low; }
extern "C" __global__ void median(const float* x, float* y, int width, int height) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float p[9];
    for (int i = 0; i < 9; ++i) {
        int r = min(max(row + i / 3 - 1, 0), height - 1), c = min(max(column + i % 3 - 1, 0), width - 1);
        p[i] = x[r * width + c];
    }
    sort(p[1], p[2]); sort(p[4], p[5]); sort(p[7], p[8]); sort(p[0], p[1]); sort(p[3], p[4]); sort(p[6], p[7]);
    sort(p[1], p[2]); sort(p[4], p[5]); sort(p[7], p[8]); sort(p[0], p[3]); sort(p[5], p[8]); sort(p[4], p[7]);
    sort(p[3], p[6]); sort(p[1], p[4]); sort(p[2], p[5]); sort(p[4], p[7]); sort(p[4], p[2]); sort(p[6], p[4]);
    sort(p[4], p[2]);
    y[row * width + column] = p[4];
}

// An image enlarged by bilinear interpolation.
extern "C" __global__ void bilinear(const float* x, float* y, int width, int height, int wide, int high) {
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    float u = column * ((float)width / wide), v = row * ((float)height / high);
    int left = (int)u, top = (int)v, right = min(left + 1, width - 1), below = min(top + 1, height - 1);
    u -= left; v -= top;
    float upper = x[top * width + left] * (1.f - u) + x[top * width + right] * u;
    float lower = x[below * width + left] * (1.f - u) + x[below * width + right] * u;
    y[row * wide + column] = upper * (1.f - v) + lower * v;
}
