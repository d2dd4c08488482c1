// nvcuda::wmma: one warp, D = 2 A B + C by opaque fragments, for each type, shape and layout; and a tiled product.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

using namespace nvcuda;

template <int M, int N, int K, typename Layout> constexpr int lead_a = std::is_same<Layout, wmma::row_major>::value ? K : M;
template <int M, int N, int K, typename Layout> constexpr int lead_b = std::is_same<Layout, wmma::row_major>::value ? N : K;

template <int M, int N, int K, typename T, typename C, typename LA, typename LB, typename Element = T>
__device__ void one(const Element* a, const Element* b, const C* c, C* d) {
    wmma::fragment<wmma::matrix_a, M, N, K, T, LA> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, T, LB> fb;
    wmma::fragment<wmma::accumulator, M, N, K, C> sum, addend;
    wmma::load_matrix_sync(fa, a, lead_a<M, N, K, LA>);
    wmma::load_matrix_sync(fb, b, lead_b<M, N, K, LB>);
    wmma::load_matrix_sync(addend, c, N + 8, wmma::mem_row_major);
    wmma::fill_fragment(sum, C(0));
    wmma::mma_sync(sum, fa, fb, sum);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + sum.x[i] + addend.x[i];
    wmma::store_matrix_sync(d, sum, M, wmma::mem_col_major);
}

using row = wmma::row_major;
using col = wmma::col_major;
#define KERNEL(name, T, C, Element, ...) \
    extern "C" __global__ void name(const Element* a, const Element* b, const C* c, C* d) { one<__VA_ARGS__, Element>(a, b, c, d); }

KERNEL(f16_row_row, __half, float, __half, 16, 16, 16, __half, float, row, row)
KERNEL(f16_row_col, __half, float, __half, 16, 16, 16, __half, float, row, col)
KERNEL(f16_col_row, __half, float, __half, 16, 16, 16, __half, float, col, row)
KERNEL(f16_col_col, __half, float, __half, 32, 8, 16, __half, float, col, col)
KERNEL(f16_wide, __half, __half, __half, 8, 32, 16, __half, __half, row, col)
KERNEL(bf16_square, __nv_bfloat16, float, __nv_bfloat16, 16, 16, 16, __nv_bfloat16, float, row, row)
KERNEL(bf16_tall, __nv_bfloat16, float, __nv_bfloat16, 32, 8, 16, __nv_bfloat16, float, col, row)
KERNEL(tf32_square, wmma::precision::tf32, float, float, 16, 16, 8, wmma::precision::tf32, float, row, col)
KERNEL(s8_square, signed char, int, signed char, 16, 16, 16, signed char, int, row, col)
KERNEL(u8_wide, unsigned char, int, unsigned char, 8, 32, 16, unsigned char, int, row, row)
KERNEL(f64_small, double, double, double, 8, 8, 4, double, double, row, col)

// C[m, n] = A[m, k] B[k, n], four warps with 32 x 32 each, operands through shared memory.
extern "C" __global__ void __launch_bounds__(128) tiled(const __half* a, const __half* b, float* c, int n, int k) {
    __shared__ __half left[64][24], right[16][72];
    int warp = threadIdx.x / 32, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64, m0 = warp / 2 * 32, n0 = warp % 2 * 32;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum[2][2];
    for (auto& line : sum) for (auto& tile : line) wmma::fill_fragment(tile, 0.0f);
    for (int start = 0; start < k; start += 16) {
        for (int i = threadIdx.x; i < 1024; i += 128) {
            left[i / 16][i % 16] = a[(row0 + i / 16) * k + start + i % 16];
            right[i / 64][i % 64] = b[(start + i / 64) * n + column0 + i % 64];
        }
        __syncthreads();
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, row> fa[2];
        wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, row> fb[2];
        for (int i = 0; i < 2; ++i) {
            wmma::load_matrix_sync(fa[i], &left[m0 + i * 16][0], 24);
            wmma::load_matrix_sync(fb[i], &right[0][n0 + i * 16], 72);
        }
        for (int i = 0; i < 2; ++i) for (int j = 0; j < 2; ++j) wmma::mma_sync(sum[i][j], fa[i], fb[j], sum[i][j]);
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 2; ++j)
            wmma::store_matrix_sync(c + (row0 + m0 + i * 16) * n + column0 + n0 + j * 16, sum[i][j], n, wmma::mem_row_major);
}
