#include "more.cuh"
//@ grid=[2,2,1];block=[64,1,1]
//@ x f32 2,2,8,16 normal box=16,6,1,1
//@ w f32 2,9 normal
//@ y f32 2,8,16 zeros box=8,4,1
//@? y = (np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,0:8,0:16] * w[None,:,0,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,0:8,1:17] * w[None,:,1,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,0:8,2:18] * w[None,:,2,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,1:9,0:16] * w[None,:,3,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,1:9,1:17] * w[None,:,4,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,1:9,2:18] * w[None,:,5,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,2:10,0:16] * w[None,:,6,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,2:10,1:17] * w[None,:,7,None,None] + np.pad(x, ((0,0),(0,0),(1,1),(1,1)))[:,:,2:10,2:18] * w[None,:,8,None,None]).sum(1) ;1e-4
// 3 x 3 convolution: patches with their edges by 4-D TMA (zeros outside), a channel a warp; both channels are added up by reducing TMA stores
D void tma4(void* s, const void* map, int x, int y, int c, int n, u64* b) { asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" :: "r"(sa(s)), "l"(map), "r"(x), "r"(y), "r"(c), "r"(n), "r"(sa(b)) : M); }
D void tma3_add(const void* map, const void* s, int x, int y, int n) { asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.tile.bulk_group [%0, {%2, %3, %4}], [%1];" :: "l"(map), "r"(sa(s)), "r"(x), "r"(y), "r"(n) : M); }
D void tma3_put(const void* map, const void* s, int x, int y, int n) { asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" :: "l"(map), "r"(sa(s)), "r"(x), "r"(y), "r"(n) : M); }
K conv(const __grid_constant__ Map x, const float* w, const __grid_constant__ Map y) {
  __shared__ alignas(128) float in[2][96], out[2][32]; __shared__ u64 full[2]; int t = threadIdx.x, ch = t / 32, l = t % 32, ox = blockIdx.x * 8, oy = blockIdx.y * 4;
  if (l == 0) { mb_init(&full[ch], 1); B(1, mb_fence(), ); }
  __syncwarp();
  for (int n = 0; n < 2; ++n) {
    B(2, __syncwarp(), );
    if (l == 0) { mb_expect(&full[ch], E(3, 384, 320)); tma4(in[ch], &x, ox - E(4, 4, 0), oy - 1, ch, n, &full[ch]); }
    B(5, mb_wait(&full[ch], n), mb_wait(&full[ch ^ 1], n));
    float s = 0; for (int i = 0; i < 9; ++i) s += in[ch][(l / 8 + i / 3) * 16 + 3 + l % 8 + i % 3] * w[ch * 9 + i];
    if (l == 0) B(6, bulk_wait_read<0>(), ); B(7, __syncwarp(), );
    out[ch][l] = s;
    B(8, fence_async(), if (l == 0) fence_async()); B(9, __syncwarp(), );
    if (l == 0) { B(10, tma3_add(&y, out[ch], ox, oy, n), tma3_put(&y, out[ch], ox, oy, n)); bulk_commit(); } }
  B(11, if (l == 0) bulk_wait<0>(), if (t == 0) bulk_wait<0>());
}
//! 1 nobody else's proxy uses the barrier before the warp meets: the thread that initialises starts the copy (no harm)
//! 2 TMA overwrites the patch while other lanes may read it (they meet later anyway, at the next __syncwarp; no harm)
//! 3 fewer bytes expected than come
//! 4 the wrong edge
//! 5 the other warp's barrier
//! 6 the staging buffer is overwritten while TMA reads it
//! 7 other lanes overwrite before lane 0 has waited
//! 8 a lane's fence covers its own writes only
//! 9 other lanes' words may not be written
//! 10 the channels overwrite each other
//! 11 warp 1's store reads after the CTA may have ended
