#include "common.cuh"
//@ grid=[2,1,1];block=[64,1,1]
//@ x f32 2,2,8,8 normal
//@ y f32 2,2,8,8 zeros
//@? y = x.transpose(1,0,3,2)
// CTA r has row r of blocks: sends block j transposed to CTA j by st.async
K __cluster_dims__(2, 1, 1) cltrans(const float* x, float* y) {
  __shared__ float in[2][64]; __shared__ u64 bar; int t = threadIdx.x; u32 r = rank();
  if (t == 0) { mb_init(&bar, 1); mb_fence(); mb_expect(&bar, E(1, 512, 256)); }
  B(2, cl_sync(), __syncthreads());
  for (u32 j = 0; j < 2; ++j) {
    float v = x[r * 128 + j * 64 + t]; int dst = (t % 8) * 8 + t / 8;
    u32 a = mapa(sa(&in[E(3, r, j)][dst]), j), b = mapa(sa(&bar), E(4, j, r));
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" :: "r"(a), "r"(__float_as_uint(v)), "r"(b) : M);
  }
  B(5, mb_wait_cluster(&bar, 0), mb_wait_cluster(&bar, 1));
  for (int j = 0; j < 2; ++j) y[r * 128 + j * 64 + t] = in[j][t];
  B(6, cl_sync(), );
}
