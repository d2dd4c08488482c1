"""One view of every kind of array: same memory, right type, right place."""

from __future__ import annotations

import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from tests.errors import refused
from warploom.isa import dtypes
from warploom.runtime import arrays
from warploom.runtime.arrays import view


class CudaInterface:
    def __init__(self, **described):
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (0x1000, False),
            "shape": (4, 8),
            "typestr": "<f4",
            **described,
        }
        self.device = type("Device", (), {"id": 1})


class Capsule:
    """An array known only by DLPack."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **how):
        return self._array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    "dtype", ["f4", "f8", "f2", "i1", "u2", "i4", "u8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_a_numpy_array_is_seen_as_it_is(dtype):
    array = np.zeros((4, 6), dtype)[:, ::2]
    seen = view(array)
    assert seen.pointer == array.ctypes.data
    assert (seen.shape, seen.strides, seen.dtype.numpy) == (array.shape, array.strides, array.dtype)
    assert seen.host is array and seen.place == "the CPU" and not seen.contiguous


def test_a_read_only_array_is_not_writable():
    array = np.zeros(3)
    array.flags.writeable = False
    assert view(array).writable is False


@pytest.mark.parametrize(
    "name", ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "int64"]
)
def test_a_torch_tensor_on_the_cpu_shares_its_memory_with_numpy(name):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(12, dtype=torch.float32).reshape(3, 4).to(getattr(torch, name)).t()
    seen = view(tensor)
    assert seen.dtype is dtypes.of(name) and seen.shape == (4, 3) and seen.pointer == tensor.data_ptr()
    assert seen.host.astype(np.float32).tolist() == tensor.float().tolist()
    seen.host[1, 2] = 100
    assert float(tensor[1, 2]) == float(view(tensor).host[1, 2]) > 90


def test_a_torch_tensor_with_a_gradient_is_taken():
    torch = pytest.importorskip("torch")
    assert view(torch.nn.Parameter(torch.ones(3))).host.tolist() == [1, 1, 1]


def test_a_sparse_or_lazily_conjugated_tensor_is_refused():
    torch = pytest.importorskip("torch")
    with refused("argument", got="torch.sparse_coo"):
        view(torch.eye(3).to_sparse(), "a")
    with refused("wrong-type"):
        view(torch.zeros(3, dtype=torch.complex64), "a")


def test_torch_is_not_imported_for_other_arrays():
    script = (
        "import sys, numpy as np; from warploom.runtime import view; view(np.zeros(3));"
        "print([name for name in ('torch', 'jax', 'cupy', 'rich', 'cuda') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_cuda_array_interface_without_strides_is_contiguous():
    seen = view(CudaInterface())
    assert (seen.pointer, seen.strides, seen.dtype, seen.place) == (0x1000, (32, 4), dtypes.f32, "cuda:1")
    assert seen.contiguous and seen.writable


def test_the_cuda_array_interface_says_strides_stream_and_read_only():
    seen = view(CudaInterface(strides=(64, 4), data=(0x2000, True), stream=7))
    assert (seen.strides, seen.writable, seen.stream, seen.contiguous) == ((64, 4), False, 7, False)


def test_a_type_the_interface_has_no_word_for_is_read_off_the_array_s_own_dtype():
    array = CudaInterface(typestr="<V2")
    array.dtype = np.dtype(ml_dtypes.bfloat16)
    assert view(array).dtype is dtypes.bf16


def test_dlpack_memory_on_the_cpu_is_shared():
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    seen = view(Capsule(array[:, 1:3]))
    assert (seen.shape, seen.strides, seen.dtype) == ((3, 2), (16, 4), dtypes.s32)
    seen.host[2, 0] = -5
    assert array[2, 1] == -5


def test_dlpack_knows_bf16_and_fp8_of_torch():
    torch = pytest.importorskip("torch")
    assert view(Capsule(torch.ones(4, dtype=torch.bfloat16))).host.tolist() == [1, 1, 1, 1]
    seen = view(Capsule(torch.ones(4, dtype=torch.float8_e4m3fn)))
    assert seen.dtype is dtypes.e4m3 and seen.host.tolist() == [1, 1, 1, 1]


def test_a_jax_array_is_seen_and_read_only():
    jax = pytest.importorskip("jax")
    seen = view(jax.numpy.arange(6, dtype="float32").reshape(2, 3))
    assert seen.host.tolist() == [[0, 1, 2], [3, 4, 5]] and not seen.writable


@pytest.mark.parametrize("value", [[1, 2], 3.0, "abc", None, np.float32(1), object()])
def test_what_is_no_array_is_refused_by_name(value):
    with refused("wrong-type"):
        view(value, "weights")


@pytest.mark.parametrize("array", [np.zeros(2, complex), np.zeros(2, ">f4"), np.zeros(2, object), np.zeros(2, "S3")])
def test_a_dtype_no_kernel_knows_is_refused_by_name(array):
    with refused("wrong-type"):
        view(array, "weights")


@pytest.mark.parametrize(
    "array, contiguous",
    [
        (np.zeros((3, 4)), True),
        (np.zeros((3, 4)).T, False),
        (np.zeros((3, 1, 4))[:, ::1], True),
        (np.zeros((8, 4))[:1], True),
        (np.zeros((8, 4))[::2], False),
        (np.zeros((4, 1)).T, True),
        (np.zeros(()), True),
    ],
)
def test_contiguity_looks_past_dimensions_of_one(array, contiguous):
    assert view(array).contiguous is contiguous is array.flags.c_contiguous


def test_a_new_array_is_made_in_the_framework_of_the_inputs():
    made = arrays.empty_like_kind(view(np.zeros(3)), (2, 5), dtypes.bf16)
    assert made.shape == (2, 5) and made.dtype == ml_dtypes.bfloat16
    assert np.isnan(made.astype(np.float32)).all()  # so that elements which a kernel never stores are wrong
    torch = pytest.importorskip("torch")
    made = arrays.empty_like_kind(view(torch.zeros(3)), (2, 5), dtypes.e5m2)
    assert made.shape == (2, 5) and made.dtype == torch.float8_e5m2
    assert made.float().isnan().all()
