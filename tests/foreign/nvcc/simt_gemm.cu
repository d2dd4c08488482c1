// A tiled product on CUDA cores: one output tile per block, each thread a small square of it, ragged edges guarded.
template <typename T, int TILE, int PER_THREAD>
__device__ void product(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ c, int m, int n, int k, T alpha, T beta) {
    constexpr int SIDE = TILE / PER_THREAD;
    __shared__ T left[TILE][SIDE + 1], right[SIDE][TILE];
    int row0 = blockIdx.y * TILE, column0 = blockIdx.x * TILE;
    int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    T sum[PER_THREAD][PER_THREAD] = {};
    for (int start = 0; start < k; start += SIDE) {
        for (int i = 0; i < PER_THREAD; ++i) {
            int row = ty + i * SIDE, column = tx + i * SIDE;
            left[row][tx] = row0 + row < m && start + tx < k ? a[(row0 + row) * k + start + tx] : T(0);
            right[ty][column] = start + ty < k && column0 + column < n ? b[(start + ty) * n + column0 + column] : T(0);
        }
        __syncthreads();
#pragma unroll
        for (int inner = 0; inner < SIDE; ++inner)
            for (int i = 0; i < PER_THREAD; ++i)
                for (int j = 0; j < PER_THREAD; ++j) sum[i][j] += left[ty + i * SIDE][inner] * right[inner][tx + j * SIDE];
        __syncthreads();
    }
    for (int i = 0; i < PER_THREAD; ++i)
        for (int j = 0; j < PER_THREAD; ++j) {
            int row = row0 + ty + i * SIDE, column = column0 + tx + j * SIDE;
            if (row < m && column < n) c[row * n + column] = alpha * sum[i][j] + beta * c[row * n + column];
        }
}

extern "C" __global__ void __launch_bounds__(256)
single(const float* a, const float* b, float* c, int m, int n, int k, float alpha, float beta) {
    product<float, 64, 4>(a, b, c, m, n, k, alpha, beta);
}

extern "C" __global__ void __launch_bounds__(256)
twofold(const double* a, const double* b, double* c, int m, int n, int k, double alpha, double beta) {
    product<double, 32, 2>(a, b, c, m, n, k, alpha, beta);
}
