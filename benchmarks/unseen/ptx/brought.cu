// What people bring to be predicted, each kernel before it ran: nvcc -ptx -arch=sm_90a -std=c++17 brought.cu -o brought.ptx
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

template <class T> using Device = cuda::atomic_ref<T, cuda::thread_scope_device>;

__device__ uint32_t shared_address(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }
__device__ void copy16(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ float warp_sum(float value) {
    for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
    return value;
}

// Weights of points in 32 x 32 bins: float atomics in shared memory, then in global memory.
extern "C" __global__ void __launch_bounds__(256) joint_histogram(const float2* points, const float* weights, float* bins, int n) {
    __shared__ float mine[1024];
    for (int i = threadIdx.x; i < 1024; i += 256) mine[i] = 0.f;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        float2 point = points[i];
        int x = min(max((int)floorf(point.x * 6.f) + 16, 0), 31), y = min(max((int)floorf(point.y * 6.f) + 16, 0), 31);
        atomicAdd(&mine[y * 32 + x], weights[i]);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 256) atomicAdd(&bins[i], mine[i]);
}

// Inclusive sums in one pass: a block publishes its sum, and a warp looks back over the blocks before it, 32 at a time.
// The last block clears the state, so that the next launch finds it as this one did.
extern "C" __global__ void __launch_bounds__(256) looked_back(const uint4* in, uint4* out, unsigned long long* state, uint32_t* tickets) {
    constexpr unsigned long long SUM = 1ull << 32, PREFIX = 2ull << 32;
    __shared__ uint32_t tile, before, of_warps[8];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) tile = atomicAdd(&tickets[0], 1u);
    __syncthreads();
    size_t at = (size_t)tile * 512 + threadIdx.x * 2;
    uint4 one = in[at], two = in[at + 1];
    one.y += one.x; one.z += one.y; one.w += one.z;
    two.x += one.w; two.y += two.x; two.z += two.y; two.w += two.z;
    uint32_t sum = two.w;
    for (int distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
        if (lane >= distance) sum += other;
    }
    if (lane == 31) of_warps[warp] = sum;
    __syncthreads();
    uint32_t offset = sum - two.w, total = 0;
    for (int i = 0; i < 8; ++i) {
        if (i < warp) offset += of_warps[i];
        total += of_warps[i];
    }
    if (warp == 0) {
        uint32_t earlier = 0;
        if (tile == 0) {
            if (lane == 0) Device<unsigned long long>(state[0]).store(PREFIX | total, cuda::memory_order_relaxed);
        } else {
            if (lane == 0) Device<unsigned long long>(state[tile]).store(SUM | total, cuda::memory_order_relaxed);
            for (int place = (int)tile - 1 - lane;; place -= 32) {
                unsigned long long found = PREFIX;
                if (place >= 0)
                    do found = Device<unsigned long long>(state[place]).load(cuda::memory_order_relaxed);
                    while (!(found >> 32));
                uint32_t ends = __ballot_sync(0xffffffffu, (found >> 32) == 2);
                uint32_t value = !ends || lane <= __ffs(ends) - 1 ? (uint32_t)found : 0;
                for (int distance = 16; distance; distance /= 2) value += __shfl_xor_sync(0xffffffffu, value, distance);
                earlier += value;
                if (ends) break;
            }
            if (lane == 0) Device<unsigned long long>(state[tile]).store(PREFIX | (earlier + total), cuda::memory_order_relaxed);
        }
        if (lane == 0) before = earlier;
    }
    __syncthreads();
    offset += before;
    out[at] = make_uint4(one.x + offset, one.y + offset, one.z + offset, one.w + offset);
    out[at + 1] = make_uint4(two.x + offset, two.y + offset, two.z + offset, two.w + offset);
    __shared__ bool last;
    if (threadIdx.x == 0) {
        __threadfence();
        last = Device<uint32_t>(tickets[1]).fetch_add(1, cuda::memory_order_acq_rel) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        for (int i = threadIdx.x; i < gridDim.x; i += 256) Device<unsigned long long>(state[i]).store(0, cuda::memory_order_relaxed);
        if (threadIdx.x < 2) Device<uint32_t>(tickets[threadIdx.x]).store(0, cuda::memory_order_relaxed);
    }
}

// A tensor with its axes permuted, as a library copies any strides: sizes and strides of 64 bits, three divisions an element.
extern "C" __global__ void permuted(const __half* in, __half* out, long long count, long long b, long long c, long long d,
                                    long long of_a, long long of_b, long long of_c, long long of_d) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
        long long rest = i / d, z = i - rest * d, other = rest / c, y = rest - other * c, w = other / b, x = other - w * b;
        out[i] = in[w * of_a + x * of_b + y * of_c + z * of_d];
    }
}

// A filter that keeps edges: 49 taps, each with an exponential, from a tile with its border in shared memory.
extern "C" __global__ void __launch_bounds__(256) bilateral(const float* image, float* out, int width, int height, float space, float range) {
    constexpr int R = 3, W = 32 + 2 * R, H = 8 + 2 * R;
    __shared__ float tile[H][W];
    int left = blockIdx.x * 32 - R, top = blockIdx.y * 8 - R;
    for (int i = threadIdx.y * 32 + threadIdx.x; i < W * H; i += 256) {
        int x = min(max(left + i % W, 0), width - 1), y = min(max(top + i / W, 0), height - 1);
        tile[i / W][i % W] = image[(size_t)y * width + x];
    }
    __syncthreads();
    float centre = tile[threadIdx.y + R][threadIdx.x + R], sum = 0.f, weights = 0.f;
#pragma unroll
    for (int dy = -R; dy <= R; ++dy)
#pragma unroll
        for (int dx = -R; dx <= R; ++dx) {
            float value = tile[threadIdx.y + R + dy][threadIdx.x + R + dx], apart = value - centre;
            float weight = __expf(-(dx * dx + dy * dy) * space - apart * apart * range);
            sum += weight * value;
            weights += weight;
        }
    out[(size_t)(blockIdx.y * 8 + threadIdx.y) * width + blockIdx.x * 32 + threadIdx.x] = sum / weights;
}

// Gradient of a layer norm's input, 4096 columns, eight bf16 a thread and load.
extern "C" __global__ void __launch_bounds__(512) norm_gradient(const uint4* x, const uint4* dy, const uint4* gamma, const float* mean,
                                                                const float* spread, uint4* dx) {
    __shared__ float2 partial[16];
    float m = mean[blockIdx.x], r = spread[blockIdx.x], a = 0.f, b = 0.f, normed[8], scaled[8];
    size_t at = (size_t)blockIdx.x * 512 + threadIdx.x;
    uint4 one = x[at], two = dy[at], three = gamma[threadIdx.x];
    const __nv_bfloat16 *p = (const __nv_bfloat16*)&one, *q = (const __nv_bfloat16*)&two, *g = (const __nv_bfloat16*)&three;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        normed[i] = (__bfloat162float(p[i]) - m) * r;
        scaled[i] = __bfloat162float(q[i]) * __bfloat162float(g[i]);
        a += scaled[i];
        b += scaled[i] * normed[i];
    }
    a = warp_sum(a);
    b = warp_sum(b);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = make_float2(a, b);
    __syncthreads();
    float2 other = partial[threadIdx.x % 16];
    for (int distance = 8; distance; distance /= 2) {
        other.x += __shfl_xor_sync(0xffffffffu, other.x, distance);
        other.y += __shfl_xor_sync(0xffffffffu, other.y, distance);
    }
    uint4 made;
    __nv_bfloat16* o = (__nv_bfloat16*)&made;
#pragma unroll
    for (int i = 0; i < 8; ++i) o[i] = __float2bfloat16((scaled[i] - other.x / 4096.f - normed[i] * other.y / 4096.f) * r);
    dx[at] = made;
}

// Softmax of very long rows: largest and sum in one pass, a second pass writes.
extern "C" __global__ void __launch_bounds__(512) long_softmax(const float* in, float* out, int columns) {
    __shared__ float2 partial[16];
    const float4* mine = (const float4*)(in + (size_t)blockIdx.x * columns);
    float4* made = (float4*)(out + (size_t)blockIdx.x * columns);
    float largest = -INFINITY, sum = 0.f;
    auto joined = [&](float m, float s) {
        float both = fmaxf(largest, m);
        sum = sum * __expf(largest - both) + s * __expf(m - both);
        largest = both;
    };
    for (int i = threadIdx.x; i < columns / 4; i += 512) {
        float4 v = mine[i];
        float m = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
        joined(m, __expf(v.x - m) + __expf(v.y - m) + __expf(v.z - m) + __expf(v.w - m));
    }
    for (int distance = 16; distance; distance /= 2)
        joined(__shfl_xor_sync(0xffffffffu, largest, distance), __shfl_xor_sync(0xffffffffu, sum, distance));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = make_float2(largest, sum);
    __syncthreads();
    largest = partial[0].x;
    sum = partial[0].y;
    for (int i = 1; i < 16; ++i) joined(partial[i].x, partial[i].y);
    float scale = 1.f / sum;
    for (int i = threadIdx.x; i < columns / 4; i += 512) {
        float4 v = mine[i];
        made[i] = make_float4(__expf(v.x - largest) * scale, __expf(v.y - largest) * scale, __expf(v.z - largest) * scale,
                              __expf(v.w - largest) * scale);
    }
}

// Two sorted lists become one: a thread finds its part of both by bisection, and merges it.
extern "C" __global__ void __launch_bounds__(128) merged(const uint32_t* a, const uint32_t* b, uint32_t* out, int n) {
    constexpr int EACH = 8, TILE = 128 * EACH;
    __shared__ uint32_t keys[TILE], made[TILE];
    __shared__ int ends[2];
    auto split = [](const uint32_t* one, int ones, const uint32_t* two, int twos, int diagonal) {
        int low = max(0, diagonal - twos), high = min(diagonal, ones);
        while (low < high) {
            int middle = (low + high) / 2;
            if (one[middle] <= two[diagonal - 1 - middle]) low = middle + 1; else high = middle;
        }
        return low;
    };
    if (threadIdx.x < 2) ends[threadIdx.x] = split(a, n, b, n, (blockIdx.x + threadIdx.x) * TILE);
    __syncthreads();
    int first = ends[0], ones = ends[1] - first, second = blockIdx.x * TILE - first, twos = TILE - ones;
    for (int i = threadIdx.x; i < TILE; i += 128) keys[i] = i < ones ? a[first + i] : b[second + i - ones];
    __syncthreads();
    int x = split(keys, ones, keys + ones, twos, threadIdx.x * EACH), y = threadIdx.x * EACH - x;
#pragma unroll
    for (int i = 0; i < EACH; ++i) {
        bool from = y >= twos || (x < ones && keys[x] <= keys[ones + y]);
        made[threadIdx.x * EACH + i] = from ? keys[x++] : keys[ones + y++];
    }
    __syncthreads();
    for (int i = threadIdx.x; i < TILE; i += 128) out[blockIdx.x * TILE + i] = made[i];
}

// Gradient of an embedding: every token's row is added to its word's row.
extern "C" __global__ void __launch_bounds__(128) scattered_gradients(const int* words, const uint2* rows, float* table) {
    uint2 four = rows[(size_t)blockIdx.x * 128 + threadIdx.x];
    const __nv_bfloat16* values = (const __nv_bfloat16*)&four;
    float* to = table + (size_t)words[blockIdx.x] * 512 + threadIdx.x * 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) atomicAdd(to + i, __bfloat162float(values[i]));
}

// A sparse matrix by rows of any length times a vector, a warp a row.
extern "C" __global__ void __launch_bounds__(256) csr_times_vector(const int* begins, const int* columns, const float* values,
                                                                   const float* x, float* y, int rows) {
    int row = (blockIdx.x * 256 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0.f;
    for (int i = begins[row] + lane; i < begins[row + 1]; i += 32) sum += values[i] * x[columns[i]];
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

// C = A B in f16 throughout, B by rows: 128 x 128, 32 deep, four stages by cp.async, ldmatrix with and without transposition.
extern "C" __global__ void __launch_bounds__(256) half_product(const __half* a, const __half* b, __half* c, int n, int k) {
    constexpr int STAGES = 4, DEPTH = 32, PITCH_A = DEPTH + 8, PITCH_B = 128 + 8;
    extern __shared__ __align__(128) __half memory[];
    __half *left = memory, *right = memory + STAGES * 128 * PITCH_A;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, top = blockIdx.y * 128, side = blockIdx.x * 128, count = k / DEPTH;
    auto start = [&](int at) {
        if (at < count) {
            __half *to_a = left + at % STAGES * 128 * PITCH_A, *to_b = right + at % STAGES * DEPTH * PITCH_B;
            for (int i = threadIdx.x; i < 512; i += 256) {
                copy16(to_a + i / 4 * PITCH_A + i % 4 * 8, a + (size_t)(top + i / 4) * k + at * DEPTH + i % 4 * 8);
                copy16(to_b + i / 16 * PITCH_B + i % 16 * 8, b + (size_t)(at * DEPTH + i / 16) * n + side + i % 16 * 8);
            }
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    uint32_t sums[4][4][2] = {};
    for (int i = 0; i < STAGES - 1; ++i) start(i);
    int down = warp / 4 * 64, across = warp % 4 * 32;
    for (int at = 0; at < count; ++at) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        start(at + STAGES - 1);
        const __half *from_a = left + at % STAGES * 128 * PITCH_A, *from_b = right + at % STAGES * DEPTH * PITCH_B;
#pragma unroll
        for (int inner = 0; inner < DEPTH; inner += 16) {
            uint32_t one[4][4], two[2][4];
            for (int i = 0; i < 4; ++i)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(one[i][0]), "=r"(one[i][1]), "=r"(one[i][2]), "=r"(one[i][3])
                             : "r"(shared_address(from_a + (down + i * 16 + lane % 16) * PITCH_A + inner + lane / 16 * 8)) : "memory");
            for (int j = 0; j < 2; ++j)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                             : "=r"(two[j][0]), "=r"(two[j][1]), "=r"(two[j][2]), "=r"(two[j][3])
                             : "r"(shared_address(from_b + (inner + lane % 16) * PITCH_B + across + j * 16 + lane / 16 * 8)) : "memory");
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 4; ++j)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                                 : "+r"(sums[i][j][0]), "+r"(sums[i][j][1])
                                 : "r"(one[i][0]), "r"(one[i][1]), "r"(one[i][2]), "r"(one[i][3]), "r"(two[j / 2][j % 2 * 2]), "r"(two[j / 2][j % 2 * 2 + 1]));
        }
    }
    for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j)
            for (int half = 0; half < 2; ++half)
                *(uint32_t*)(c + (size_t)(top + down + i * 16 + lane / 4 + half * 8) * n + side + across + j * 8 + lane % 4 * 2) = sums[i][j][half];
}

// C = A B^T of f32 by tf32 multiplications: 64 x 64, 16 deep, the next tile in registers meanwhile.
extern "C" __global__ void __launch_bounds__(128) tf32_product(const float* a, const float* b, float* c, int n, int k) {
    constexpr int DEPTH = 16, PITCH = DEPTH + 4;
    __shared__ float left[64 * PITCH], right[64 * PITCH];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, top = blockIdx.y * 64, side = blockIdx.x * 64;
    int row = threadIdx.x / 4, part = threadIdx.x % 4 * 4, down = warp / 2 * 32, across = warp % 2 * 32;
    float4 ones[2], twos[2];
    auto load = [&](int at) {
        for (int i = 0; i < 2; ++i) {
            ones[i] = *(const float4*)(a + (size_t)(top + row + i * 32) * k + at + part);
            twos[i] = *(const float4*)(b + (size_t)(side + row + i * 32) * k + at + part);
        }
    };
    float sums[2][4][4] = {};
    load(0);
    for (int at = 0; at < k; at += DEPTH) {
        __syncthreads();
        for (int i = 0; i < 2; ++i) {
            *(float4*)(left + (row + i * 32) * PITCH + part) = ones[i];
            *(float4*)(right + (row + i * 32) * PITCH + part) = twos[i];
        }
        __syncthreads();
        if (at + DEPTH < k) load(at + DEPTH);
#pragma unroll
        for (int inner = 0; inner < DEPTH; inner += 8) {
            uint32_t one[2][4], two[4][2];
            auto rounded = [](float value) { uint32_t made; asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(made) : "f"(value)); return made; };
            for (int i = 0; i < 2; ++i)
                for (int p = 0; p < 4; ++p)
                    one[i][p] = rounded(left[(down + i * 16 + lane / 4 + p % 2 * 8) * PITCH + inner + lane % 4 + p / 2 * 4]);
            for (int j = 0; j < 4; ++j)
                for (int p = 0; p < 2; ++p) two[j][p] = rounded(right[(across + j * 8 + lane / 4) * PITCH + inner + lane % 4 + p * 4]);
            for (int i = 0; i < 2; ++i)
                for (int j = 0; j < 4; ++j)
                    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                                 : "+f"(sums[i][j][0]), "+f"(sums[i][j][1]), "+f"(sums[i][j][2]), "+f"(sums[i][j][3])
                                 : "r"(one[i][0]), "r"(one[i][1]), "r"(one[i][2]), "r"(one[i][3]), "r"(two[j][0]), "r"(two[j][1]));
        }
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j)
            for (int half = 0; half < 2; ++half)
                *(float2*)(c + (size_t)(top + down + i * 16 + lane / 4 + half * 8) * n + side + across + j * 8 + lane % 4 * 2) =
                    make_float2(sums[i][j][2 * half], sums[i][j][2 * half + 1]);
}

// Largest of 3 x 3 pixels, every second pixel, 64 channels of bf16, eight a thread.
extern "C" __global__ void __launch_bounds__(256) pooled(const uint4* in, uint4* out, int side) {
    int half = side / 2, i = blockIdx.x * 256 + threadIdx.x;
    int part = i % 8, x = i / 8 % half, y = i / 8 / half % half, image = i / 8 / half / half;
    uint4 best = make_uint4(0xff80ff80u, 0xff80ff80u, 0xff80ff80u, 0xff80ff80u);
    __nv_bfloat162* so_far = (__nv_bfloat162*)&best;
    for (int dy = -1; dy < 2; ++dy)
        for (int dx = -1; dx < 2; ++dx) {
            int from_x = 2 * x + dx, from_y = 2 * y + dy;
            if (from_x < 0 || from_y < 0) continue;
            uint4 found = in[(((size_t)image * side + from_y) * side + from_x) * 8 + part];
            const __nv_bfloat162* these = (const __nv_bfloat162*)&found;
            for (int j = 0; j < 4; ++j) so_far[j] = __hmax2(so_far[j], these[j]);
        }
    out[i] = best;
}

// Cholesky factors of 16 x 16 matrices G G^T + 16, a warp each.
extern "C" __global__ void __launch_bounds__(128) factored(const float* in, float* out) {
    __shared__ float given[4][16][17], matrix[4][16][17];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    size_t first = ((size_t)blockIdx.x * 4 + warp) * 256;
    float (*g)[17] = given[warp], (*m)[17] = matrix[warp];
    for (int i = lane; i < 256; i += 32) g[i / 16][i % 16] = in[first + i];
    __syncwarp();
    for (int i = lane; i < 256; i += 32) {
        float sum = i / 16 == i % 16 ? 16.f : 0.f;
        for (int j = 0; j < 16; ++j) sum += g[i / 16][j] * g[i % 16][j];
        m[i / 16][i % 16] = sum;
    }
    __syncwarp();
    for (int k = 0; k < 16; ++k) {
        float root = sqrtf(m[k][k]);
        __syncwarp();
        if (lane >= k && lane < 16) m[lane][k] = lane == k ? root : m[lane][k] / root;
        __syncwarp();
        for (int i = lane; i < 256; i += 32) {
            int row = i / 16, column = i % 16;
            if (row >= column && column > k) m[row][column] -= m[row][k] * m[column][k];
        }
        __syncwarp();
    }
    for (int i = lane; i < 256; i += 32) out[first + i] = i % 16 <= i / 16 ? m[i / 16][i % 16] : 0.f;
}

// Weights in blocks of 32 with a scale, 18 bytes each, times a vector in blocks of bytes, by dp4a; a warp a row.
struct Weights { __half scale; uint16_t pairs[8]; };
extern "C" __global__ void __launch_bounds__(128) blocks_times_vector(const Weights* w, const int* x, const float* of_x, float* y, int blocks) {
    int row = (blockIdx.x * 128 + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0.f;
    for (int at = lane; at < blocks; at += 32) {
        const Weights* mine = w + (size_t)row * blocks + at;
        int dot = 0, of_eights = 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int four = mine->pairs[2 * i] | mine->pairs[2 * i + 1] << 16, low = x[at * 8 + i], high = x[at * 8 + 4 + i];
            dot = __dp4a(four & 0x0f0f0f0f, low, dot);
            dot = __dp4a(four >> 4 & 0x0f0f0f0f, high, dot);
            of_eights = __dp4a(0x08080808, low, of_eights);
            of_eights = __dp4a(0x08080808, high, of_eights);
        }
        sum += __half2float(mine->scale) * of_x[at] * (dot - of_eights);
    }
    sum = warp_sum(sum);
    if (lane == 0) y[row] = sum;
}

// A price by simulated paths: counters of Philox, normal numbers by logarithms and sines, sums of blocks by atomics.
extern "C" __global__ void __launch_bounds__(256) simulated(float* sums, int steps, float drift, float spread, uint32_t seed) {
    __shared__ float partial[8];
    uint32_t path = blockIdx.x * 256 + threadIdx.x;
    float value = 0.f;
    for (int step = 0; step < steps; step += 4) {
        uint32_t c0 = path, c1 = step, c2 = 0, c3 = 0, k0 = seed, k1 = 0x5eed;
#pragma unroll
        for (int round = 0; round < 10; ++round) {
            uint32_t high0 = __umulhi(0xD2511F53u, c0), low0 = 0xD2511F53u * c0, high1 = __umulhi(0xCD9E8D57u, c2), low1 = 0xCD9E8D57u * c2;
            c0 = high1 ^ c1 ^ k0; c1 = low1; c2 = high0 ^ c3 ^ k1; c3 = low0;
            k0 += 0x9E3779B9u; k1 += 0xBB67AE85u;
        }
        float u0 = (c0 + 0.5f) * 2.3283064e-10f, u1 = c1 * 1.4629181e-9f, u2 = (c2 + 0.5f) * 2.3283064e-10f, u3 = c3 * 1.4629181e-9f;
        float r0 = sqrtf(-2.f * __logf(fminf(u0, 0.9999999f))), r1 = sqrtf(-2.f * __logf(fminf(u2, 0.9999999f))), s0, d0, s1, d1;
        __sincosf(u1, &s0, &d0);
        __sincosf(u3, &s1, &d1);
        value += 4.f * drift + spread * (r0 * s0 + r0 * d0 + r1 * s1 + r1 * d1);
    }
    float paid = warp_sum(fmaxf(__expf(value) - 1.f, 0.f));
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = paid;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.f;
        for (int i = 0; i < 8; ++i) sum += partial[i];
        sums[blockIdx.x] = sum;
    }
}

// Forces between atoms and their listed neighbours.
extern "C" __global__ void __launch_bounds__(128) neighbour_forces(const float4* atoms, const int* neighbours, float4* forces, int n, int each) {
    int i = blockIdx.x * 128 + threadIdx.x;
    float4 mine = atoms[i], force = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int j = 0; j < each; ++j) {
        float4 other = atoms[neighbours[(size_t)j * n + i]];
        float dx = mine.x - other.x, dy = mine.y - other.y, dz = mine.z - other.z, square = dx * dx + dy * dy + dz * dz + 0.5f;
        if (square < 9.f) {
            float inverse = 1.f / square, six = inverse * inverse * inverse, factor = six * (six - 0.5f) * inverse;
            force.x += dx * factor;
            force.y += dy * factor;
            force.z += dz * factor;
            force.w += six * (six - 1.f);
        }
    }
    forces[i] = force;
}

// A picture by persistent blocks that take tiles of 16 x 16 from a queue; the last block to end sets the queue back.
extern "C" __global__ void __launch_bounds__(256) queued_picture(uint32_t* counters, uint8_t* picture, int side, int tiles, int most) {
    __shared__ int tile;
    int wide = side / 16;
    for (;;) {
        if (threadIdx.x == 0) tile = atomicAdd(&counters[0], 1u);
        __syncthreads();
        int mine = tile;
        __syncthreads();
        if (mine >= tiles) break;
        int x = mine % wide * 16 + threadIdx.x % 16, y = mine / wide * 16 + threadIdx.x / 16, steps = 0;
        float re = (x + 0.5f) / side * 3.f - 1.5f, im = (y + 0.5f) / side * 3.f - 1.5f;
        while (steps < most && re * re + im * im < 4.f) {
            float next = re * re - im * im - 0.75f;
            im = 2.f * re * im + 0.11f;
            re = next;
            ++steps;
        }
        picture[(size_t)y * side + x] = (uint8_t)min(steps, 255);
    }
    if (threadIdx.x == 0 && atomicAdd(&counters[1], 1u) == gridDim.x - 1) {
        atomicExch(&counters[0], 0u);
        atomicExch(&counters[1], 0u);
    }
}

// Steps of Jacobi's method in one launch, with a barrier of the whole grid after each.
extern "C" __global__ void __launch_bounds__(512) relaxed(const float* given, float* one, float* two, uint32_t* arrived, int wide, int steps) {
    int rows = 8, first = blockIdx.x * rows, last = gridDim.x * rows - 1;
    for (int step = 0; step < steps; ++step) {
        const float* from = step % 2 ? two : step ? one : given;
        float* to = step % 2 ? one : two;
        for (int i = threadIdx.x; i < rows * wide; i += 512) {
            int y = first + i / wide, x = i % wide;
            float sum = x && x < wide - 1 && y && y < last
                ? 0.25f * (__ldcg(from + (y - 1) * wide + x) + __ldcg(from + (y + 1) * wide + x) + __ldcg(from + y * wide + x - 1) + __ldcg(from + y * wide + x + 1))
                : __ldcg(from + y * wide + x);
            to[y * wide + x] = sum;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            Device<uint32_t> counter(*arrived);
            uint32_t mine = counter.fetch_add(1, cuda::memory_order_acq_rel), until = (mine / gridDim.x + 1) * gridDim.x;
            while ((int)(counter.load(cuda::memory_order_acquire) - until) < 0) __nanosleep(20);
        }
        __syncthreads();
    }
}

// Kepler's equation by Newton's method in f64, until it no longer changes.
extern "C" __global__ void __launch_bounds__(256) orbits(const double* anomaly, const double* shape, double* out) {
    int i = blockIdx.x * 256 + threadIdx.x;
    double m = anomaly[i], e = fabs(shape[i]) / (fabs(shape[i]) + 1.0), found = m, change;
    int steps = 0;
    do {
        double s, c;
        sincos(found, &s, &c);
        change = (found - e * s - m) / (1.0 - e * c);
        found -= change;
    } while (fabs(change) > 1e-12 && ++steps < 20);
    out[i] = found;
}

// The eight nearest of many points for each point, kept in order in an array that is indexed at run time.
extern "C" __global__ void __launch_bounds__(128) nearest(const float2* queries, const float2* points, float* distances, int* indices, int n) {
    __shared__ float2 tile[128];
    float best[8];
    int which[8], mine = blockIdx.x * 128 + threadIdx.x;
    for (int i = 0; i < 8; ++i) { best[i] = INFINITY; which[i] = -1; }
    float2 query = queries[mine];
    for (int first = 0; first < n; first += 128) {
        tile[threadIdx.x] = points[first + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 128; ++j) {
            float dx = tile[j].x - query.x, dy = tile[j].y - query.y, square = dx * dx + dy * dy;
            if (square < best[7]) {
                int at = 7;
                while (at > 0 && best[at - 1] > square) {
                    best[at] = best[at - 1];
                    which[at] = which[at - 1];
                    --at;
                }
                best[at] = square;
                which[at] = first + j;
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 8; ++i) {
        distances[(size_t)mine * 8 + i] = best[i];
        indices[(size_t)mine * 8 + i] = which[i];
    }
}

// Walsh-Hadamard transform of 128 values a thread, in blocks of 1024 threads, so that most values do not fit in registers.
extern "C" __global__ void __launch_bounds__(1024) hadamard(const float* in, float* out, int columns) {
    int column = blockIdx.x * 1024 + threadIdx.x;
    float values[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) values[i] = in[(size_t)i * columns + column];
#pragma unroll
    for (int distance = 1; distance < 128; distance *= 2)
#pragma unroll
        for (int i = 0; i < 128; ++i)
            if (!(i & distance)) {
                float one = values[i], two = values[i + distance];
                values[i] = one + two;
                values[i + distance] = one - two;
            }
#pragma unroll
    for (int i = 0; i < 128; ++i) out[(size_t)i * columns + column] = values[i] * 0.088388348f;
}
