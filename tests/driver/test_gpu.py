"""The GPU machine on a GPU: launches, maps, streams, graphs, clusters, and what goes wrong."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.errors import refused
from tests.runtime.kernels import PROGRAM, SCALE_ADD
from warploom.errors import DriverError
from warploom.isa.dtypes import f32
from warploom.runtime import ArraySpec, Caller, Parameter, Program, TensorMap, TiledMap, launch
from warploom.settings import config

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

N = 10_000
HEADER = ".version 8.0\n.target sm_90a\n.address_size 64\n"

COPY_TILE = (
    HEADER
    + """
.visible .entry copy_tile(.param .align 64 .b8 map[128], .param .u64 c)
{
    .reg .pred %p;
    .reg .b32 %r<16>;
    .reg .b64 %rd<8>;
    .reg .f32 %f<4>;
    .shared .align 1024 .b8 tile[1024];
    .shared .align 8 .b64 full;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    mov.u32 %r3, full;
    mov.b64 %rd1, map;
    cvta.param.u64 %rd1, %rd1;
    setp.ne.u32 %p, %r1, 0;
    @%p bra WAIT;
    mbarrier.init.shared::cta.b64 [%r3], 1;
    fence.proxy.async.shared::cta;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 1024;
    mov.u32 %r4, %ctaid.x;
    shl.b32 %r4, %r4, 4;
    mov.u32 %r5, %ctaid.y;
    shl.b32 %r5, %r5, 4;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%rd1, {%r4, %r5}], [%r3];
WAIT:
    bar.sync 0;
SPIN:
    mbarrier.try_wait.parity.shared::cta.b64 %p, [%r3], 0;
    @!%p bra SPIN;
    // thread t writes word t of the tile to c[cta * 256 + t]
    shl.b32 %r6, %r1, 2;
    add.u32 %r7, %r2, %r6;
    ld.shared.f32 %f1, [%r7];
    mov.u32 %r8, %ctaid.y;
    mov.u32 %r9, %nctaid.x;
    mov.u32 %r10, %ctaid.x;
    mad.lo.u32 %r8, %r8, %r9, %r10;
    shl.b32 %r8, %r8, 8;
    add.u32 %r8, %r8, %r1;
    ld.param.u64 %rd2, [c];
    mul.wide.u32 %rd3, %r8, 4;
    add.s64 %rd2, %rd2, %rd3;
    st.global.f32 [%rd2], %f1;
    ret;
}
"""
)
"""Tile (16, 16) of f32 by TMA into shared memory, and from there to c."""

RANK = (
    HEADER
    + """
.visible .entry rank(.param .u64 c)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<4>;
    mov.u32 %r1, %cluster_ctarank;
    mov.u32 %r2, %ctaid.x;
    ld.param.u64 %rd1, [c];
    mul.wide.u32 %rd2, %r2, 4;
    add.s64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
)


@pytest.fixture
def tensors():
    torch.manual_seed(0)
    return torch.randn(N, device="cuda"), torch.randn(N, device="cuda"), torch.empty(N, device="cuda")


def same(c, a, b, alpha):
    torch.cuda.synchronize()
    torch.testing.assert_close(c, torch.addcmul(b, a, torch.tensor(alpha, device=a.device)), rtol=1e-6, atol=1e-6)


def test_a_vector_kernel_gives_the_right_answer(tensors):
    a, b, c = tensors
    assert Caller(PROGRAM)(a, b, c, 3.0) is c
    same(c, a, b, 3.0)


def test_outputs_are_made_beside_the_inputs(tensors):
    a, b, _ = tensors
    call = Caller(PROGRAM)
    for _ in range(3):
        c = call(a, b, 2.0)
        assert c.device == a.device and c.dtype == a.dtype
        same(c, a, b, 2.0)


def test_the_same_text_gives_the_same_bits_on_both_machines(tensors):
    a, b, c = tensors
    Caller(PROGRAM)(a, b, c, 3.0)
    assert np.array_equal(c.cpu().numpy(), Caller(PROGRAM)(a.cpu().numpy(), b.cpu().numpy(), 3.0))


def test_cupy_and_interface_arrays_run_on_the_gpu():
    cupy = pytest.importorskip("cupy")
    a, b = cupy.arange(N, dtype="f4"), cupy.ones(N, "f4")
    c = Caller(PROGRAM)(a, b, 2.0)
    assert isinstance(c, cupy.ndarray) and bool((c == 2 * a + b).all())


def test_jax_arrays_run_on_the_gpu():
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("jax has no GPU here")
    a, b = jax.numpy.arange(N, dtype="float32"), jax.numpy.ones(N, "float32")
    assert bool((Caller(PROGRAM)(a, b, 2.0) == 2 * a + b).all())


@pytest.mark.parametrize("swizzle", ["NONE", "64B"])
def test_a_tensor_map_says_the_same_to_both_machines(swizzle):
    program = Program(
        COPY_TILE, "copy_tile",
        arrays=(ArraySpec("a", ("m", "n"), f32, order="rows"), ArraySpec("c", ("tiles", 256), f32, "inout")),
        parameters=(
            Parameter("map", "tensor_map", f32, "a", TiledMap(box=(16, 16), swizzle=swizzle)),
            Parameter("c", "pointer", f32),
        ),
        grid=lambda dims, machine: (dims["n"] // 16, dims["m"] // 16), block=(256,),
    )  # fmt: skip
    a = torch.arange(64 * 48, dtype=torch.float32).reshape(64, 48)
    on_gpu, on_cpu = torch.zeros(12, 256, device="cuda"), torch.zeros(12, 256)
    Caller(program)(a.cuda(), on_gpu)
    Caller(program)(a, on_cpu)
    assert on_gpu.cpu().equal(on_cpu) and on_cpu.any()
    text_gpu = torch.zeros_like(on_gpu)
    launch(COPY_TILE, TensorMap.tiled(a.cuda(), box=(16, 16), swizzle=swizzle), text_gpu, grid=(3, 4), block=256)
    assert text_gpu.equal(on_gpu)


def test_a_call_runs_on_the_caller_s_current_stream(tensors):
    a, b, c = tensors
    call = Caller(PROGRAM)
    call(a, b, c, 1.0)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        call(a, b, c, 5.0)
        assert not stream.query(), "the launch waited, or went elsewhere"
    assert torch.cuda.default_stream().query()
    same(c, a, b, 5.0)


def test_two_threads_on_two_streams_share_a_call(tensors):
    a, b, _ = tensors
    call, results, failures = Caller(PROGRAM), {}, []

    def work(alpha):
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                c = torch.empty_like(a)
                for _ in range(500):
                    call(a, b, c, alpha)
                results[alpha] = c
                torch.cuda.current_stream().synchronize()
        except BaseException as error:
            failures.append(error)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(alpha,)) for alpha in (1.0, 2.0, 3.0, 4.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures
    for alpha, c in results.items():
        same(c, a, b, alpha)


def test_a_thread_that_never_touched_cuda_may_call(tensors):
    a, b, c = tensors
    call, failures = Caller(PROGRAM), []
    call(a, b, c, 1.0)

    def work():
        try:
            call(a, b, c, 7.0, stream=0)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures, failures
    same(c, a, b, 7.0)


@pytest.mark.parametrize("pdl", [False, True])
def test_a_call_can_be_captured_in_a_graph_and_replayed(tensors, pdl):
    from dataclasses import replace

    a, b, c = tensors
    call = Caller(replace(PROGRAM, pdl=pdl))
    call(a, b, c, 1.0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(a, b, c, 2.0)
        call(c, b, a, 1.0)
    first, second = a.clone(), b.clone()
    c.zero_()
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(c, 2 * first + second, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(a, c + second, rtol=1e-6, atol=1e-6)
    call(a, b, c, 4.0)
    same(c, a, b, 4.0)


def test_a_first_call_inside_a_capture_is_refused_with_advice(tensors):
    from dataclasses import replace

    a, b, c = tensors
    fresh = Caller(replace(PROGRAM, text=SCALE_ADD + "// never loaded before\n"))
    graph = torch.cuda.CUDAGraph()
    with refused("load-in-capture"), torch.cuda.graph(graph):
        c.zero_()
        fresh(a, b, c, 1.0)
    torch.cuda.synchronize()
    fresh(a, b, c, 2.0)
    same(c, a, b, 2.0)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_clusters_are_launched(size):
    c = torch.full((32,), -1, dtype=torch.int32, device="cuda")
    launch(RANK, c, grid=32, block=32, cluster=size)
    assert c.tolist() == [number % size for number in range(32)]


def test_dynamic_shared_memory_up_to_the_limit(tensors):
    a, b, c = tensors
    launch(SCALE_ADD, a, b, c, N, 2.0, grid=200, block=64, dynamic_smem=232448)
    same(c, a, b, 2.0)
    with refused("launch-shape", got="232449"):
        launch(SCALE_ADD, a, b, c, N, 2.0, grid=200, block=64, dynamic_smem=232449)


def test_a_bad_launch_names_the_error_and_leaves_the_gpu_usable(tensors, monkeypatch):
    from warploom.runtime import bind

    a, b, c = tensors
    monkeypatch.setattr(bind, "broken_limit", lambda *arguments: None)
    with pytest.raises(DriverError, match="CUDA_ERROR_") as caught:
        launch(SCALE_ADD, a, b, c, N, 2.0, grid=(1, 70_000), block=64)
    for part in ("scale_add", "(1, 70000, 1)", "`a` f32 (10000,) on cuda:0"):
        assert part in str(caught.value)
    launch(SCALE_ADD, a, b, c, N, 2.0, grid=200, block=64)
    same(c, a, b, 2.0)


def test_mixed_devices_are_refused(tensors):
    a, b, c = tensors
    with refused("wrong-device"):
        Caller(PROGRAM)(a, b.cpu(), c, 1.0)


@pytest.mark.filterwarnings("ignore::warploom.errors.CompilerFallbackWarning")
def test_the_driver_s_own_compiler_builds_where_there_is_no_ptxas(tensors, monkeypatch, tmp_path):
    from warploom.driver import toolchain

    a, b, c = tensors
    monkeypatch.setattr(toolchain, "_places", lambda name: iter(()))
    with config.override(cache_dir=tmp_path):
        launch(SCALE_ADD + "// by the driver\n", a, b, c, N, 2.0, grid=200, block=64)
    same(c, a, b, 2.0)


def test_the_device_is_described():
    from warploom.driver import library

    device = library.load().device(0)
    assert device.sms == torch.cuda.get_device_properties(0).multi_processor_count
    assert device.name == torch.cuda.get_device_name(0)
