#include "more.cuh"
#include <cooperative_groups.h>
#include <cuda/pipeline>
namespace cg = cooperative_groups;
//@ grid=[2,1,1];block=[96,1,1]
//@ x f32 2,8,64 normal
//@ y f32 2,8,64 zeros
//@? y = x + x[:, :, ::-1] ;1e-5
// cuda::pipeline with roles: a warp copies rows, two warps use them; three stages
K roles(const float* x, float* y) {
  __shared__ alignas(16) float buf[3][64]; __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, E(1, 3, 4)> state;
  auto cta = cg::this_thread_block(); int t = threadIdx.x; auto role = t < 32 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer;
  auto pipe = cuda::make_pipeline(cta, &state, role); x += blockIdx.x * 512; y += blockIdx.x * 512;
  if (t < 32) for (int i = 0; i < 8; ++i) {
    B(2, pipe.producer_acquire(), if (i < 3) pipe.producer_acquire());
    cuda::memcpy_async(buf[E(3, i % 3, i % 2)] + t * 2, x + i * 64 + t * 2, cuda::aligned_size_t<8>(8), pipe);
    if (BUG == 4) buf[i % 3][t] = x[i * 64 + t];
    B(5, pipe.producer_commit(), if (t != 9 || i != 4) pipe.producer_commit()); }
  else { t -= 32;
    for (int i = 0; i < 8; ++i) {
      B(6, pipe.consumer_wait(), if (t >= 32 || i != 3) pipe.consumer_wait());
      float v = buf[i % 3][t]; if (BUG == 7) pipe.consumer_release();
      y[i * 64 + t] = v + buf[i % 3][63 - t];
      if (BUG != 7) B(8, pipe.consumer_release(), if (i != 2 || t) pipe.consumer_release()); } }
}
//! 1 a stage more than buffers: a buffer is filled while it is read
//! 2 the producer does not wait for free buffers
//! 3 rows are filled into buffers that are in use
//! 4 plain stores into bytes that copies write
//! 5 one thread's commit is missing
//! 6 a warp reads a row that it has not waited for
//! 7 the buffer is released before it is read again
//! 8 one release is missing
