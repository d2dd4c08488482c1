// Helpers of kernels with bugs planted by hand. BUG is the number of the bug that is in; 0: none.
#pragma once
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifndef BUG
#define BUG 0
#endif
#define B(n, good, ...) do { if (BUG == n) { __VA_ARGS__; } else { good; } } while (0)
#define E(n, good, bad) (BUG == n ? (bad) : (good))
#define D __device__ __forceinline__
#define K extern "C" __global__ void
#define M "memory"
typedef uint32_t u32; typedef uint64_t u64; typedef __nv_bfloat16 bf;
D u32 sa(const void* p) { return (u32)__cvta_generic_to_shared(p); }
D void mb_init(u64* b, u32 n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(sa(b)), "r"(n) : M); }
D void mb_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: M); }
D void mb_arrive(u64* b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(sa(b)) : M); }
D void mb_expect(u64* b, u32 n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(sa(b)), "r"(n) : M); }
D void mb_wait(u64* b, u32 p) { asm volatile("{\n.reg .pred q;\nW: mbarrier.try_wait.parity.shared::cta.b64 q, [%0], %1;\n@!q bra W;\n}" :: "r"(sa(b)), "r"(p) : M); }
D void mb_wait_cluster(u64* b, u32 p) { asm volatile("{\n.reg .pred q;\nW: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 q, [%0], %1;\n@!q bra W;\n}" :: "r"(sa(b)), "r"(p) : M); }
D u32 mapa(u32 a, u32 r) { u32 o; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(o) : "r"(a), "r"(r)); return o; }
D void mb_arrive_remote(u64* b, u32 r) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(mapa(sa(b), r)) : M); }
D u32 rank() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
D void cl_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: M); }
D void cl_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: M); }
D void cl_sync() { cl_arrive(); cl_wait(); }
D void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: M); }
D void bulk_load(void* s, const void* g, u32 n, u64* b) { asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(sa(s)), "l"(g), "r"(n), "r"(sa(b)) : M); }
D void bulk_store(void* g, const void* s, u32 n) { asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(g), "r"(sa(s)), "r"(n) : M); }
D void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: M); }
template <int N> D void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" :: "n"(N) : M); }
template <int N> D void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : M); }
D void cpa16(void* s, const void* g) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(sa(s)), "l"(g) : M); }
D void cpa_commit() { asm volatile("cp.async.commit_group;" ::: M); }
template <int N> D void cpa_wait() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : M); }
D void nb_sync(int id, int n) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(n) : M); }
D void nb_arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(n) : M); }
D void tma2(void* s, const void* map, int x, int y, u64* b) { asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" :: "r"(sa(s)), "l"(map), "r"(x), "r"(y), "r"(sa(b)) : M); }
D void tma2_store(const void* map, const void* s, int x, int y) { asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" :: "l"(map), "r"(sa(s)), "r"(x), "r"(y) : M); }
D void ldsm4(u32* r, const void* p) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(sa(p)) : M); }
D void ldsm2t(u32* r, const void* p) { asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(sa(p)) : M); }
D void mma(float* c, const u32* a, const u32* b) { asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); }
D void wg_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: M); }
D void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: M); }
template <int N> D void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : M); }
D u64 desc128(const void* p) { u64 a = sa(p); return ((a & 0x3FFFF) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62); }
D void wg_n32_ss(float* c, u64 da, u64 db, int acc) { asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, p, 1, 1, 0, 0;\n}" : "+f"(c[0]),"+f"(c[1]),"+f"(c[2]),"+f"(c[3]),"+f"(c[4]),"+f"(c[5]),"+f"(c[6]),"+f"(c[7]),"+f"(c[8]),"+f"(c[9]),"+f"(c[10]),"+f"(c[11]),"+f"(c[12]),"+f"(c[13]),"+f"(c[14]),"+f"(c[15]) : "l"(da), "l"(db), "r"(acc)); }
D void wg_n32_rs(float* c, const u32* a, u64 db, int acc) { asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\nwgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}" : "+f"(c[0]),"+f"(c[1]),"+f"(c[2]),"+f"(c[3]),"+f"(c[4]),"+f"(c[5]),"+f"(c[6]),"+f"(c[7]),"+f"(c[8]),"+f"(c[9]),"+f"(c[10]),"+f"(c[11]),"+f"(c[12]),"+f"(c[13]),"+f"(c[14]),"+f"(c[15]) : "r"(a[0]),"r"(a[1]),"r"(a[2]),"r"(a[3]), "l"(db), "r"(acc)); }
D u32 pack(float a, float b) { __nv_bfloat162 v = __floats2bfloat162_rn(a, b); return *(u32*)&v; }
