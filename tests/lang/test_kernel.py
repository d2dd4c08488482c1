"""Whole kernels: declarations, emitted text, and bad input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import numpy as np
import pytest

from tests.errors import refused
from tests.lang.tools import line_of, make, statements
from warploom import asm
from warploom.errors import ArgumentError, ArgumentTypeError, TraceError, WarploomError
from warploom.kernels.walkthrough import build_gemm_m64n64
from warploom.lang import Kernel, Scalar, Tile, kernel, ptx, reg, smem, tiles
from warploom.settings import config
from warploom.types import bf16, f32, s32, u32, u64


@kernel(
    in_specs=(Tile("M", "N", f32), Scalar(f32)), out_specs=(Tile("M", "N", f32),), grid=(tiles("N", 32), "M"), block=32
)
def scaled(X, factor, Y):
    column = ptx.special.ctaid.x() * 32 + ptx.special.tid.x()
    row = ptx.special.ctaid.y()
    with ptx.if_(column < X.shape[1]):
        x, y = ptx.global_ptrs(X, Y)
        offset = (row.to(u64) * X.shape[1] + column) * 4
        ptx.store(ptx.addr(y + offset), ptx.load(f32, ptx.addr(x + offset)) * factor)


def test_named_sizes_scalars_and_grid_are_parameters_of_one_text():
    names = [parameter.name for parameter in scaled.program().parameters]
    assert names == ["ptr_X", "ptr_Y", "arg_factor", "dim_N"]  # M is only in the grid
    for shape in ((3, 40), (1, 1), (2, 64)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        np.testing.assert_array_equal(scaled(x, 2.5), x * np.float32(2.5))
        np.testing.assert_array_equal(scaled(x, factor=-1.0), -x)


def test_outputs_are_allocated_or_given():
    x, y = np.ones((2, 5), np.float32), np.zeros((2, 5), np.float32)
    assert scaled(x, 3.0, out=y) is y
    assert (y == 3).all()
    assert isinstance(scaled(x, 3.0), np.ndarray)
    torch = pytest.importorskip("torch")
    result = scaled(torch.ones(2, 5), 4.0)
    assert isinstance(result, torch.Tensor) and bool((result == 4).all())


@pytest.mark.parametrize(
    "arguments, kind",
    [
        ((np.ones((2, 3), np.float64), 1.0), ArgumentTypeError),
        ((np.ones(3, np.float32), 1.0), ArgumentError),
        ((np.ones((4, 6), np.float32)[:, ::2], 1.0), ArgumentError),
        ((np.ones((2, 3), np.float32),), ArgumentTypeError),
        ((np.ones((2, 3), np.float32), 1.0, np.ones((3, 2), np.float32)), WarploomError),
        (([[1.0]], 1.0), ArgumentTypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments, kind):
    with pytest.raises(kind):
        scaled(*arguments)


def test_a_vector_access_asks_for_the_arrays_alignment():
    @kernel(in_specs=(Tile(8, f32),), out_specs=(Tile(8, f32),), grid=(1,), block=1)
    def copy(X, Y):
        x, y = ptx.global_ptrs(X, Y)
        for half in range(2):
            ptx.store(ptx.addr(y + 16 * half), ptx.load(f32, ptx.addr(x + 16 * half), vector=4))

    assert [array.align for array in copy.program().arrays] == [16, 16]
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(copy(x), x)


# -- the text --------------------------------------------------------------------------------------------------------


def test_the_text_parses_back_and_verifies():
    module = asm.parse(scaled.ptx())
    assert asm.verify(module) == []
    assert module.to_text() == asm.parse(module.to_text()).to_text()


def test_the_text_names_python_lines_and_no_folder_of_this_machine():
    def body():
        reg.scalar(u32, init=77)  # here

    text = make(body).ptx()
    assert re.search(rf"\.loc 2 {line_of('here', __file__)} 0\n +mov\.b32 %r1, 77;", text)
    assert '.file 2 "test_kernel.py"' in text  # file 1 is tools.py, which `make` is in
    assert os.path.dirname(__file__) not in text
    assert '.file 1 "warploom/kernels/walkthrough.py"' in build_gemm_m64n64(64, 64, 16).ptx()


def test_a_shape_taken_apart_has_the_users_line_and_not_pythons_own():
    @kernel(in_specs=(Tile("M", "N", f32),), grid=(1,), block=32)
    def sizes(X):
        _, n = X.shape  # in two
        reg.scalar(u32, init=n)

    text = sizes.ptx()
    assert "<frozen" not in text
    assert re.search(rf"\.loc 1 {line_of('in two', __file__)} 0\n +ld\.param", text)


def test_line_information_can_be_left_out():
    with config.override(line_info=False):
        assert ".loc" not in make(lambda: None).ptx()


def test_the_same_python_gives_the_same_text_in_any_process():
    code = "from warploom.kernels.walkthrough import build_gemm_m64n64 as b; print(b(64, 128, 96).ptx(), end='')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONHASHSEED": "7"}
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert other.stdout == build_gemm_m64n64(64, 128, 96).ptx()


def test_two_threads_trace_at_once():
    sizes = [16 * n for n in range(1, 9)]
    expected = [build_gemm_m64n64(64, 64, k).ptx() for k in sizes]
    found: dict[int, str] = {}
    barrier = threading.Barrier(len(sizes))

    def trace(k: int) -> None:
        subject = build_gemm_m64n64(64, 64, k)
        barrier.wait()
        found[k] = subject.ptx()

    threads = [threading.Thread(target=trace, args=(k,)) for k in sizes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[k] for k in sizes] == expected


def test_a_kernel_is_traced_once_and_anew_for_other_constants():
    traced = []

    @kernel(in_specs=(Tile(4, u32),), out_specs=(Tile(4, u32),), grid=(1,), block=4)
    def fill(A, C, *, value: int = 1):
        traced.append(value)
        ptx.store(ptx.addr(C.pointer() + ptx.special.tid.x() * 4), value, dtype=u32)

    nine = fill.bind(value=9)
    for subject, value in ((fill, 1), (fill, 1), (nine, 9), (nine, 9)):
        assert (subject(np.zeros(4, np.uint32)) == value).all()
    assert traced == [1, 9]
    with refused("kernel-declaration"):
        fill.bind(size=3)


def test_an_exception_in_the_body_leaves_no_trace_behind():
    def body():
        raise ValueError("mine")

    with pytest.raises(ValueError):
        make(body).ptx()
    with refused("outside-kernel"):
        reg.scalar(u32)


def test_declared_shapes_of_a_launch_are_in_the_text(assembles):
    subject = make(lambda: None, block=(64, 2), cluster=(2, 1, 1), registers=40)
    for directive in (".reqntid 64, 2, 1", ".maxnreg 40", ".reqnctapercluster 2, 1, 1"):
        assert directive in subject.ptx()
    assert assembles(subject).registers <= 40


def test_sass_shows_the_machine_code():
    from warploom.driver import toolchain

    if toolchain.ptxas() is None or not (toolchain.find("nvdisasm") or toolchain.find("cuobjdump")):
        pytest.skip("no disassembler here")
    assert "EXIT" in scaled.sass()


# -- the protocol ----------------------------------------------------------------------------------------------------


def test_the_protocol_lists_barriers_buffers_and_bytes():
    text = build_gemm_m64n64(64, 64, 64).protocol()
    assert re.search(r"bars\[0\.\.3\] +1 +4096 +copies +warploom/kernels/walkthrough\.py:\d+", text)
    assert re.search(r"sA +2048 +0 +bf16 64 x 16 K-major, swizzle 32B", text)
    assert re.search(r"sB +2048 +2048 +bf16 16 x 64 MN-major, swizzle 128B", text)


def test_a_barrier_nobody_initialises_shows():
    assert "not initialised" in make(lambda: smem.mbarrier(1)).protocol()


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, complaint",
    [
        ({"arch": "sm_91"}, ("argument", "sm_91")),
        ({"arch": "hopper"}, ("argument", "hopper")),
        ({"block": 2048}, ("kernel-declaration", "(2048, 1, 1)")),
        ({"block": (1024, 2)}, ("kernel-declaration", "(1024, 2, 1)")),
        ({"block": 0}, ("kernel-declaration", "0")),
        ({"cluster": (2, 1, 1), "arch": "sm_80"}, ("kernel-declaration", "(2, 1, 1)")),
        ({"block": (2, 2, 128)}, ("kernel-declaration", "(2, 2, 128)")),
        ({"cluster": (32, 1, 1)}, ("kernel-declaration", "(32, 1, 1)")),
        ({"registers": 256}, ("kernel-declaration", "256")),
        ({"registers": 255, "block": 512}, ("kernel-declaration", "255")),
    ],
)
def test_a_launch_beyond_the_target_is_refused_at_the_kernels_definition(options, complaint):
    with refused(*complaint):
        make(lambda: None, **options)


def test_a_kernel_that_never_writes_its_output_is_refused():
    def only_reads(A, C):
        ptx.load(f32, ptx.addr(A.pointer()))
        ptx.load(f32, ptx.addr(C.pointer()))

    subject = kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(1,), block=32)(only_reads)
    with refused("output-not-written"):
        subject.ptx()


@pytest.mark.parametrize("way", ["store", "through another register", "reduction", "atomic", "tensor store"])
def test_every_way_of_writing_an_output_counts(way):
    @kernel(out_specs=(Tile(32, 32, f32, box=(32, 32)),), grid=(1,), block=32)
    def write(C):
        value = reg.scalar(f32, init=0)
        if way == "tensor store":
            ptx.tma.store(C.tma_desc(), smem.array(f32, (32, 32), align=128)[0], (0, 0))
            return
        (pointer,) = ptx.global_ptrs(C)
        if way == "store":
            ptx.inst.st.global_.f32(ptx.addr(pointer), value)
        elif way == "through another register":
            other = reg.scalar(u64)
            ptx.inst.mov.b64(other, pointer)
            other += 64
            ptx.store(ptx.addr(other), value)
        elif way == "reduction":
            ptx.inst.red.global_.add.f32(ptx.addr(pointer), value)
        else:
            ptx.inst.atom.global_.add.f32(value, ptx.addr(pointer), value)

    write.ptx()


@pytest.mark.parametrize(
    "function, specs",
    [
        (lambda A: None, {"in_specs": (Tile(4, f32),), "out_specs": (Tile(4, f32),)}),
        (lambda A, B, C: None, {"in_specs": (Tile(4, f32),), "out_specs": (Tile(4, f32),)}),
        (lambda *arrays: None, {"out_specs": (Tile(4, f32),)}),
    ],
)
def test_parameters_and_specs_must_agree(function, specs):
    with refused("kernel-declaration"):
        kernel(**specs, grid=(1,), block=32)(function)


@pytest.mark.parametrize(
    "make_tile",
    [
        lambda: Tile(4),
        lambda: Tile(0, f32),
        lambda: Tile(-4, f32),
        lambda: Tile(2.5, f32),
        lambda: Tile("M N", f32),
        lambda: Tile(4, 5),
        lambda: Tile(4, "f128"),
        lambda: Tile.wgmma_a(64, 64, bf16, tile_m=64, tile_k=10),
        lambda: Tile.wgmma_a(64, 60, bf16, tile_m=64, tile_k=16),
    ],
)
def test_tiles_that_cannot_be_are_refused(make_tile):
    with pytest.raises(WarploomError):
        make_tile()


@pytest.mark.parametrize(
    "sizes, wrong", [((64, 64, 0), 0), ((63, 64, 16), 63), ((64, 100, 16), 100), ((64, 64, 24), 24), ((64, 0, 16), 0)]
)
def test_the_walkthrough_refuses_sizes_its_tile_does_not_divide(sizes, wrong):
    with refused("argument", got=str(wrong)):
        build_gemm_m64n64(*sizes)


def test_a_missing_tensor_map_says_how_to_get_one():
    @kernel(in_specs=(Tile(8, 8, f32),), out_specs=(Tile(8, f32),), grid=(1,), block=32)
    def subject(A, C):
        A.tma_desc()

    with refused("trace") as caught:
        subject.ptx()
    assert "box" in (caught.value.hint or "")


def test_an_array_has_a_tensor_map_for_each_box_it_is_moved_in():
    @kernel(out_specs=(Tile(32, 48, f32, box=(32, 32), swizzle="128B"),), grid=(1,), block=32, arch="sm_90a")
    def subject(C):
        tile = smem.array(f32, (2, 32, 32), align=1024)
        thread = ptx.special.tid.x()
        for column in range(32):
            ptx.store(tile[0, thread, column], 1.0, dtype=f32)
            ptx.store(tile[1, thread, column], 2.0, dtype=f32)
        ptx.fence.proxy_async_shared_cta()
        ptx.bar.sync(0)
        with ptx.if_(thread == 0):
            ptx.tma.store(C.tma_desc(), tile[0], (0, 0))
            ptx.tma.store(C.tma_desc((16, 32)), tile[1], (32, 0))
            ptx.cp.async_.bulk.commit_group()
            ptx.cp.async_.bulk.wait_group(0)

    names = [parameter.name for parameter in subject.program().parameters]
    assert names == ["map_C", "map_C_16x32"]
    report = subject.emulate(np.zeros((32, 48), np.float32))
    report.raise_on_findings()
    np.testing.assert_array_equal(report.outputs[0], np.repeat([[1.0, 2.0]], 32, axis=0).repeat([32, 16], axis=1))


def test_a_box_has_an_extent_for_each_dimension():
    @kernel(out_specs=(Tile(32, 32, f32, box=(32, 32)),), grid=(1,), block=32)
    def subject(C):
        C.tma_desc((32,))

    with refused("trace", got="(32,)"):
        subject.ptx()


def test_an_input_that_is_also_written_keeps_what_it_held():
    @kernel(in_specs=(Tile(32, u32, inout=True),), out_specs=(Tile(1, u32),), grid=(1,), block=32)
    def add_thread(Total, C):
        thread = ptx.special.tid.x()
        ptx.inst.red.global_.add.u32(ptx.addr(Total.pointer() + thread.to(u64) * 4), thread)
        with ptx.if_(thread == 0):
            ptx.store(ptx.addr(C.pointer()), thread)

    total = np.full(32, 100, np.uint32)
    add_thread(total)
    np.testing.assert_array_equal(total, 100 + np.arange(32))
    total.flags.writeable = False
    with refused("not-writable"):
        add_thread(total)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ptx.mbarrier.init(smem.mbarrier(1), 1),
        lambda: ptx.mbarrier.init(smem.mbarrier(1)[0], 0),
        lambda: ptx.mbarrier.init(smem.mbarrier(1)[0], 1 << 20),
        lambda: ptx.mbarrier.wait(smem.mbarrier(1)[0], 2),
        lambda: ptx.bar.sync(16),
        lambda: ptx.bar.sync(1, 48),
        lambda: ptx.setmaxnreg.inc(41),
        lambda: ptx.setmaxnreg.inc(264),
        lambda: ptx.cp.async_.cg(smem.array(f32, 4)[0], ptx.addr(reg.scalar(u64)), 8),
        lambda: ptx.ldmatrix(smem.array(bf16, 64)[0], 3),
        lambda: ptx.store(ptx.addr(reg.scalar(u64)), 1.0),
        lambda: ptx.select(reg.scalar(s32), 1, 2),
    ],
)
def test_helpers_refuse_what_their_instructions_do_not_take(call):
    with pytest.raises(TraceError) as caught:
        make(call).ptx()
    assert caught.value.where.file == "test_kernel.py"


def test_a_kernel_shows_where_it_is():
    assert re.fullmatch(r"<kernel scaled sm_90a at test_kernel\.py:\d+>", repr(scaled))
    assert isinstance(scaled, Kernel)
    assert statements(scaled)[-1] == "ret;"


def test_a_kernel_that_may_overlap_the_one_before_must_wait_for_it():
    @kernel(out_specs=(Tile(32, u32),), grid=1, block=32, pdl=True)
    def hasty(C):
        (c,) = ptx.global_ptrs(C)
        ptx.store(ptx.addr(c), reg.scalar(u32, init=1))

    with refused("no-dependency-wait"):
        hasty.ptx()


# -- arguments by name ---------------------------------------------------------------------------------------------


def test_arguments_may_be_declared_by_name():
    @kernel(
        in_specs={"x": Tile("N", u32), "step": Scalar(u32)}, out_specs={"out": Tile("N", u32)}, grid=(1,), block=32,
        arch="sm_80",
    )  # fmt: skip
    def shifted(x, out, **numbers):
        place = (ptx.special.tid.x() * 4).to(u64)
        value = ptx.load(u32, ptx.addr(x.pointer() + place))
        ptx.store(ptx.addr(out.pointer() + place), value + numbers["step"])

    assert shifted.names == ("x", "step", "out")
    values = np.arange(32, dtype=np.uint32)
    np.testing.assert_array_equal(shifted(values, np.uint32(5)), values + 5)


@pytest.mark.parametrize(
    "specs",
    [
        {"in_specs": {"x": Tile("N", u32)}, "out_specs": {"other": Tile("N", u32)}},
        {"in_specs": {"x": Tile("N", u32)}, "out_specs": (Tile("N", u32),)},
    ],
)
def test_names_that_the_function_does_not_take_are_refused(specs):
    with pytest.raises(TraceError):

        @kernel(**specs, grid=(1,), block=32, arch="sm_80")
        def subject(x, out): ...
