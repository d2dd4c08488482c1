// What blocks of a grid do together: atomics, fences, the last block finishes the work, a lock, a spin on a flag.
extern "C" __global__ void total(const float* in, int count, float* parts, unsigned* done, float* result) {
    __shared__ float sums[8];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += in[i];
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        float all = 0;
        for (int warp = 0; warp < blockDim.x / 32; ++warp) all += sums[warp];
        parts[blockIdx.x] = all;
        __threadfence();
        last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        float all = 0;
        for (int part = 0; part < gridDim.x; ++part) all += static_cast<volatile float*>(parts)[part];
        *result = all;
    }
}

extern "C" __global__ void locked(int* lock, double* sum, double* largest, unsigned long long* longest) {
    double mine = blockIdx.x * 0.5 + threadIdx.x;
    atomicAdd(sum, mine);
    atomicMax(longest, (unsigned long long)(blockIdx.x) << 40 | threadIdx.x);
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) __nanosleep(20);
        __threadfence();
        if (mine + 1 > *(volatile double*)largest) *(volatile double*)largest = mine + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// A chain through the grid: block b waits for block b - 1.
extern "C" __global__ void chained(const int* in, int* out, volatile int* flags) {
    __shared__ int before;
    if (threadIdx.x == 0) {
        if (blockIdx.x > 0) while (flags[blockIdx.x - 1] == 0) { }
        __threadfence();
        before = blockIdx.x > 0 ? out[blockIdx.x - 1] : 0;
    }
    __syncthreads();
    int sum = __reduce_add_sync(~0u, in[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) {
        out[blockIdx.x] = before + sum;
        __threadfence();
        flags[blockIdx.x] = 1;
    }
}
