"""Wrong arguments: refused before anything runs, by name, with what was expected and what was passed."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from tests.runtime.kernels import PROGRAM, SCALE_ADD
from warploom.errors import ArgumentError, ArgumentTypeError
from warploom.isa.dtypes import bf16, e4m3, f32, u32
from warploom.runtime import H200, ArraySpec, Caller, Machine, Parameter, Program, TensorMap, TiledMap, emulate
from warploom.runtime.arrays import view
from warploom.runtime.bind import Arguments, bind
from warploom.runtime.validate import overlap, scalar_of


def gemm(**changes) -> Program:
    """A program that is only bound, never run."""
    program = Program(
        text="", entry="gemm",
        arrays=(
            ArraySpec("A", ("M", "K"), bf16, multiple=(64, 16), order="rows"),
            ArraySpec("B", ("K", "N"), bf16, multiple=(1, 64), order="rows"),
            ArraySpec("C", ("M", "N"), f32, "out"),
        ),
        parameters=(
            Parameter("A_map", "tensor_map", bf16, "A", TiledMap(box=(64, 64), swizzle="128B")),
            Parameter("C", "pointer", f32),
            Parameter("K", "scalar", u32),
            Parameter("ldb", "scalar", u32, "B.stride[0]"),
            Parameter("tiles", "scalar", u32, value=lambda dims: dims["M"] // 64 * (dims["N"] // 64)),
        ),
        grid=lambda dims, machine: (min(dims["M"] // 64, machine.sms), dims["N"] // 64),
        block=(128,),
    )  # fmt: skip
    return replace(program, **changes)


def arrays(m=128, n=192, k=64):
    return [np.zeros(shape, dtype) for shape, dtype in (((m, k), bf16.numpy), ((k, n), bf16.numpy), ((m, n), "f4"))]


def bound(program, *values, machine=None):
    views = [view(value, spec.name) for spec, value in zip(program.arrays, values, strict=True)]
    return bind(program, Arguments(views), machine or H200())


def test_sizes_strides_and_grid_come_from_the_arrays():
    a, b, c = arrays()
    found = bound(gemm(), a, np.zeros((64, 256), bf16.numpy)[:, :192], c)
    assert found.dims == {"M": 128, "N": 192, "K": 64}
    assert (found.grid, found.block, found.cluster) == ((2, 3, 1), (128, 1, 1), (1, 1, 1))
    spec, pointer, k, ldb, tiles = found.values
    assert spec.spec.dims == (64, 128) and pointer.pointer == c.ctypes.data
    assert (k, ldb, tiles) == (64, 256, 6) and k.dtype == np.uint32


def test_a_grid_rule_sees_the_machine():
    assert bound(gemm(), *arrays(m=640), machine=Machine("small", "sm_90a", sms=4)).grid == (4, 3, 1)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"A": np.zeros((128, 64), "f4")}, ("wrong-type", "numpy array of f32, shape (128, 64), on the CPU")),
        ({"A": np.zeros(128, bf16.numpy)}, ("wrong-shape", "rank 1, shape (128,)")),
        ({"B": np.zeros((80, 192), bf16.numpy)}, ("wrong-shape", "shape (80, 192)")),
        ({"A": np.zeros((100, 64), bf16.numpy)}, ("wrong-shape", "shape (100, 64)")),
        ({"A": np.zeros((128, 0), bf16.numpy)}, ("wrong-shape", "shape (128, 0)")),
        ({"A": np.zeros((64, 128), bf16.numpy).T}, ("wrong-layout", "strides of (2, 256) bytes for shape (128, 64)")),
        ({"C": np.zeros((128, 384), "f4")[:, ::2]}, ("wrong-layout", "strides of (1536, 8) bytes")),
        ({"C": np.zeros((192, 128), "f4")}, ("wrong-shape", "shape (192, 128)")),
        (
            {"A": np.zeros((128, 72), bf16.numpy)[:, :64][:, ::-1]},
            ("wrong-layout", "strides of (144, -2) bytes for shape (128, 64)"),
        ),
        ({"A": np.zeros((128, 67), bf16.numpy)[:, :64]}, ("argument", "134")),
    ],
)
def test_a_wrong_array_is_refused_by_name(change, said):
    given = dict(zip("ABC", arrays(), strict=True)) | change
    with refused(*said):
        bound(gemm(), *given.values())


def test_a_read_only_or_broadcast_output_is_refused():
    a, b, c = arrays()
    with refused("not-writable"):
        bound(gemm(arrays=(*gemm().arrays[:2], ArraySpec("C", ("M", "N"), f32, "out", order="any"))), a, b,
              np.lib.stride_tricks.as_strided(c, strides=(0, 4)))  # fmt: skip
    c.flags.writeable = False
    with refused("not-writable"):
        bound(gemm(), a, b, c)


def test_an_output_that_overlaps_an_input_is_refused():
    memory = np.zeros(128 * 64 + 128 * 192 * 2, bf16.numpy)
    a, b, _ = arrays()
    a = memory[: 128 * 64].reshape(128, 64)
    c = memory[64:].view("f4")[: 128 * 192].reshape(128, 192)
    with refused("overlap"):
        bound(gemm(), a, b, c)


def test_an_output_may_take_exactly_the_memory_of_the_input_that_it_names():
    whole = np.zeros((128, 192), np.float32)
    addend, out = ArraySpec("C", ("M", "N"), f32), ArraySpec("D", ("M", "N"), f32, "out", may_alias="C")
    adds = gemm(arrays=(addend, out), parameters=(), grid=(1, 1, 1))
    assert bound(adds, whole, whole).dims["M"] == 128
    with refused("overlap"):
        bound(adds, whole[:64], whole[32:96])
    with refused("overlap"):
        bound(replace(adds, arrays=(addend, replace(out, may_alias=""))), whole, whole)


def test_column_blocks_of_one_matrix_do_not_overlap():
    whole = np.zeros((8, 16), np.float32)
    left, right, middle = (view(part) for part in (whole[:, :8], whole[:, 8:], whole[:, 4:12]))
    assert not overlap(left, right) and not overlap(right, left)
    assert overlap(left, middle) and overlap(middle, right)
    assert not overlap(view(whole[:4]), view(whole[4:]))


def test_a_misaligned_gpu_address_that_tma_cannot_take_is_refused_by_name():
    a, b, c = (view(value) for value in arrays())
    a = replace(a, pointer=0x7F0000000002, device="cuda")
    with refused("wrong-layout") as caught:
        bind(gemm(), Arguments([a, b, c]), H200())
    assert caught.value.got == "0x7f0000000002" and "16" in caught.value.expected


@pytest.mark.parametrize(
    ("rows", "pitch", "code"), [(128, 194, "wrong-layout"), (128, 196, ""), (1, 194, "")],
    ids=["misaligned", "padded", "one row"],
)  # fmt: skip
def test_rows_that_begin_where_the_kernel_cannot_access_them_are_refused(rows, pitch, code):
    """A stride is of no account where there is one row."""
    of_c = ArraySpec("C", (rows, "N"), f32, "out", order="rows", row_align=16)
    program, (a, b, _) = gemm(arrays=(*gemm().arrays[:2], of_c)), arrays()
    c = np.zeros((rows, pitch), "f4")[:, :192]
    if not code:
        assert bound(program, a, b, c).dims["N"] == 192
        return
    with refused(code, got=f"strides of ({4 * pitch}, 4) bytes for shape ({rows}, 192)") as caught:
        bound(program, a, b, c)
    assert "16 bytes" in caught.value.expected


def test_a_size_the_kernel_cannot_do_is_its_own_error():
    def refuse(dims):
        raise ArgumentError("this K is too deep", got=dims["K"])

    with refused("argument", got="64"):
        bound(gemm(check_dims=refuse), *arrays())


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"block": (1025,)}, ("launch-shape", "(1025, 1, 1)")),
        ({"block": (4, 4, 65)}, ("launch-shape", "(4, 4, 65)")),
        ({"cluster": (32, 1, 1), "grid": (32, 1, 1)}, ("launch-shape", "(32, 1, 1)")),
        ({"cluster": (4, 1, 1)}, ("launch-shape", "(2, 3, 1)")),
        ({"dynamic_smem": 232449}, ("launch-shape", "232449")),
        ({"grid": (1, 70000, 1)}, ("launch-shape", "(1, 70000, 1)")),
        ({"grid": (0, 1, 1)}, ("launch-shape", "(0, 1, 1)")),
        ({"grid": ()}, ("wrong-arguments", "nothing")),
    ],
)
def test_a_launch_beyond_the_target_is_refused(changes, said):
    with refused(*said):
        bound(gemm(**changes), *arrays())


def test_sm_80_has_no_clusters():
    with refused("launch-shape"):
        bound(gemm(cluster=(2, 1, 1)), *arrays(), machine=Machine("A100", "sm_80", 108))


@pytest.mark.parametrize(
    "value, dtype, result",
    [
        (3, u32, 3),
        (2**32 - 1, u32, 2**32 - 1),
        (1.5, f32, 1.5),
        (np.float64(0.1), f32, np.float32(0.1)),
        (True, u32, 1),
        (1, e4m3, 1),
    ],
)
def test_a_number_becomes_the_parameter_s_type(value, dtype, result):
    made = scalar_of(value, dtype, "x", "k")
    assert made == result and made.dtype == dtype.numpy


@pytest.mark.parametrize(
    "value, dtype, error",
    [(-1, u32, ArgumentError), (2**32, u32, ArgumentError), (1.5, u32, ArgumentTypeError),
     ("3", u32, ArgumentTypeError), (None, f32, ArgumentTypeError), ([1], f32, ArgumentTypeError)],
)  # fmt: skip
def test_a_number_that_does_not_fit_is_refused_by_name(value, dtype, error):
    with refused("wrong-type"):
        scalar_of(value, dtype, "alpha", "k")


# -- the call ----------------------------------------------------------------------------------------------------

A, B = np.arange(100, dtype=np.float32), np.ones(100, np.float32)


@pytest.mark.parametrize(
    "args, keywords, said",
    [
        ((A,), {}, ("wrong-arguments", "1 positional arguments")),
        ((A, B), {}, ("wrong-arguments", "2 positional arguments")),
        ((A, B, A, B, A), {}, ("wrong-arguments", "5 positional arguments")),
        ((A, B), {"beta": 1}, ("wrong-arguments", "beta=")),
        ((A, B, 1.0), {"out": (A, B)}, ("wrong-arguments", "out= with 2")),
        ((A, [1.0], 1.0), {}, ("wrong-type", "list [1.0]")),
        ((A, B, "much"), {}, ("wrong-type", "str")),
    ],
)
def test_a_wrong_call_shows_how_it_is_called(args, keywords, said):
    with refused(*said):
        Caller(PROGRAM)(*args, **keywords)


def test_a_stream_for_host_arrays_is_refused():
    with refused("wrong-device") as caught:
        Caller(PROGRAM)(A, B, 2.0, stream=0)
    assert "`a` on the CPU" in str(caught.value)


def test_arrays_on_different_devices_are_refused_by_name():
    class Cuda:
        __cuda_array_interface__ = {"version": 3, "data": (4096, False), "shape": (100,), "typestr": "<f4"}
        device = type("Device", (), {"id": 0})

    with refused("wrong-device") as caught:
        Caller(PROGRAM)(A, Cuda(), 2.0)
    assert "`a` on the CPU" in str(caught.value) and "`b` on cuda:0" in str(caught.value)


def test_the_arguments_of_a_text_are_its_parameters():
    c = np.zeros_like(A)
    for args, word in [
        ((A, B, c, 100), ("wrong-arguments", "4 arguments")),
        ((A, B, c, A, 1.0), ("wrong-type", "numpy array of f32, shape (100,), on the CPU")),
        ((A, B, c, 1.5, 1.0), ("wrong-type", "1.5")),
        ((A, B, TensorMap.tiled(np.zeros((8, 8), np.float32), box=(8, 8)), 100, 1.0), ("wrong-type", "TensorMap")),
        ((A, B, np.float32(1), 100, 1.0), ("wrong-type", "float32")),
    ]:
        with refused(*word):
            emulate(SCALE_ADD, *args, grid=2, block=64)


@pytest.mark.parametrize("what", ["/nowhere/kernel.ptx", 3, None])
def test_what_is_no_program_is_refused(what):
    with pytest.raises((ArgumentError, ArgumentTypeError)):
        emulate(what, A)


def test_an_entry_that_is_not_there_is_refused_with_those_that_are():
    with refused("not-this-text"):
        emulate(SCALE_ADD, A, entry="other")


def test_a_map_of_what_tma_cannot_address_is_refused():
    with refused("argument", got="128 bytes (shape (64, 64), strides (2, 128))"):
        TensorMap.tiled(np.zeros((64, 64), ml_dtypes.bfloat16).T, box=(64, 8), swizzle="128B")
    with refused("argument", got="256 bytes"):
        TensorMap.tiled(np.zeros((64, 128), ml_dtypes.bfloat16), box=(128, 8), swizzle="128B")
