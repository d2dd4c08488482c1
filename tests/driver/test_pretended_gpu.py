"""From a call to cuLaunchKernelEx, with a mock driver that only logs calls (fake_cuda.c)."""

# ruff: noqa: E501  (scripts in strings)

from __future__ import annotations

import pytest

from tests.driver.mock_gpu import IMPORTED

pytestmark = pytest.mark.usefixtures("needs_ptxas")


def launches(log: list[str]) -> list[str]:
    return [line for line in log if line.startswith("launch")]


def test_a_text_is_built_loaded_once_and_launched_on_the_stream(pretend):
    log = pretend("""
for stream in (0, 0x30, 0x40):
    assert launch(ADD, x, y, np.uint32(7), grid=(2, 3), block=32, stream=stream) is None
""")
    assert log.count("load ELF") == 1 and log.count("function add") == 1
    assert [line.split(" first")[0] for line in launches(log)] == [
        f"launch grid 2 3 1 block 32 1 1 smem 0 stream {stream:x}" for stream in (0, 0x30, 0x40)
    ]


def test_the_first_parameter_is_the_array_s_address(pretend):
    log = pretend("""
launch(ADD, x, y, 1, grid=1, block=32)
with open(__import__("os").environ["FAKE_CUDA_LOG"], "a") as log: log.write(f"address {x.array.ctypes.data:x}\\n")
""")
    (line,) = launches(log)
    assert line.split("first ")[1] == log[-1].removeprefix("address ")


def test_a_launch_passes_shape_cluster_and_programmatic_launch(pretend):
    log = pretend("""
from dataclasses import replace
program = replace(Program.from_text(ADD, grid=(8, 1, 1), block=(64, 2), cluster=(4, 1, 1)), dynamic_smem=100_000, pdl=True)
launch(program, x, y, 5, stream=0x50)
launch(program, x, y, 5, stream=0x50)
""")
    assert "attribute 8 100000" in log
    assert [line.partition(" first")[0] for line in launches(log)] == [
        "launch grid 8 1 1 block 64 2 1 smem 100000 stream 50"
    ] * 2
    assert all(line.endswith(" cluster 4 1 1 pdl 1") for line in launches(log))


KEPT = """
from warploom.driver.launch import PreparedLaunch
from warploom.runtime import on_gpu
kept = []
real = on_gpu.prepare
on_gpu.prepare = lambda *a: kept.append(real(*a)) or kept[-1]
launch(ADD, x, y, 5, grid=1, block=32, stream=0x80)
"""


def test_launches_of_one_shape_share_what_the_driver_only_reads_and_keep_their_own_parameters(pretend):
    log = pretend(
        KEPT
        + """
(first,) = kept
other = first.with_values({0: (0xABC0).to_bytes(8, "little")})
assert other.config(0x80) is first.config(0x80) and other.config(0x90) is not first.config(0x80)
assert first.values[0] == x.array.ctypes.data.to_bytes(8, "little") and other.values[1:] == first.values[1:]
large = PreparedLaunch(first.kernel, first.grid, first.block, first.cluster, 0, [bytes(4), b"m" * 128, b"s" * 3, b"n" * 128])
assert large.values == [bytes(4), b"m" * 128, b"s" * 3, b"n" * 128]
assert all(large.place_of(number) % 64 == 0 for number in (1, 3)) and large.place_of(2) % 8 == 0
for each in (other, first, other):
    each(0x90)
"""
    )
    firsts = [line.split("first ")[1] for line in launches(log)]
    assert firsts[1] == firsts[3] == "abc0" and firsts[2] == firsts[0] != "abc0"


def test_a_cluster_of_more_than_eight_asks_for_leave(pretend):
    log = pretend("launch(ADD, x, y, 5, grid=16, block=32, cluster=16)")
    assert "attribute 14 1" in log


def test_a_refused_launch_names_cuda_s_error_the_kernel_and_its_arguments(pretend):
    pretend(
        """
with pytest.raises(errors.DriverError) as caught:
    launch(ADD, x, y, 5, grid=3, block=32, stream=0x60)
text = str(caught.value)
for part in ("CUDA_ERROR_INVALID_VALUE", "`add`", "grid (3, 1, 1)", "block (32, 1, 1)", "stream 0x60", "`a` f32 (32,) on cuda:0"):
    assert part in text, (part, text)
""",
        FAKE_CUDA_LAUNCH=1,
    )


def test_a_kernel_is_not_loaded_while_a_graph_is_captured(pretend):
    log = pretend("""
import os
os.environ["FAKE_CUDA_CAPTURING"] = "1"
import ctypes; ctypes.CDLL(None).setenv(b"FAKE_CUDA_CAPTURING", b"1", 1)
with refused("load-in-capture"):
    launch(ADD, x, y, 5, grid=1, block=32, stream=0x70)
ctypes.CDLL(None).unsetenv(b"FAKE_CUDA_CAPTURING")
launch(ADD, x, y, 5, grid=1, block=32, stream=0x70)
ctypes.CDLL(None).setenv(b"FAKE_CUDA_CAPTURING", b"1", 1)
launch(ADD, y, x, 5, grid=1, block=32, stream=0x70)
""")
    assert log.count("load ELF") == 1 and len(launches(log)) == 2


def test_a_thread_without_a_context_launches_all_the_same(pretend):
    log = pretend(
        KEPT
        + """
failures = []
def work():
    try: kept[0](0x90)
    except BaseException as error: failures.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
assert not failures, failures
"""
    )
    assert len(launches(log)) == 5


def test_a_tensor_map_is_encoded_innermost_first_and_only_once(pretend):
    text = (
        ".version 8.0\\n.target sm_90a\\n.address_size 64\\n"
        ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 a)\\n{ ret; }\\n"
    )
    log = pretend(f"""
text = "{text}"
base = np.zeros(128 * 64 + 64, np.float32)
start = -(base.ctypes.data // 4) % 4
matrix = Cuda(base[start : start + 128 * 64].reshape(128, 64))
for _ in range(3):
    launch(text, TensorMap.tiled(matrix, box=(32, 64), swizzle="128B"), matrix, grid=1, block=32)
odd = Cuda(base[start + 1 : start + 1 + 64 * 64].reshape(64, 64))
with refused("wrong-layout"):
    TensorMap.tiled(odd, box=(32, 64), swizzle="128B")
""")
    assert [line for line in log if line.startswith("map")] == [
        "map 7 rank 2 dims 64 128 stride 256 box 32 64 swizzle 3"
    ]
    assert all("first 5a5a5a5a5a5a5a5a" in line for line in launches(log)) and len(launches(log)) == 3


def test_maps_of_pixels_go_to_the_driver_s_functions_for_them(pretend):
    log = pretend("""
from warploom.driver import tensor_map
from warploom.isa.im2col import PixelBox
from warploom.isa.tensor_map import TensorMapSpec
spec = TensorMapSpec.tiled((4, 14, 9, 64), None, "bf16", (32, 48), swizzle="64B", element_strides=(1, 2, 3, 1),
                           pixels=PixelBox((-1, -2), (-3, 4)))
assert tensor_map.encode(spec, 256) == b"\\x5a" * 128
for mode in ("im2col::w", "im2col::w::128"):
    wide = TensorMapSpec.tiled((4, 14, 9, 64), None, "bf16", (32, 128), swizzle="128B", element_strides=(1, 2, 1, 1),
                               oob_fill="NAN", pixels=PixelBox((-1,), (2,), mode))
    assert tensor_map.encode(wide, 256) == b"\\x5a" * 128
""")
    assert [line for line in log if line.startswith(("im2col", "wide"))] == [
        "im2col 9 rank 4 dims 64 9 corners -1 -2 to -3 4 moves 32 48 steps 2 3 swizzle 2",
        "wide 9 rank 4 corners -1 to 2 moves 32 128 steps 2 mode 0 swizzle 3 fill 1",
        "wide 9 rank 4 corners -1 to 2 moves 32 128 steps 2 mode 1 swizzle 3 fill 1",
    ]


def test_the_stream_that_an_array_names_is_used_or_waited_for(pretend):
    log = pretend("""
launch(ADD, Cuda(x.array, stream=0x20), y, 5, grid=1, block=32)
launch(ADD, Cuda(x.array, stream=0x20), y, 5, grid=1, block=32, stream=0x21)
""")
    assert [line for line in log if line.startswith(("launch", "synch"))] == [
        line for line in log if "stream 20" in line or "synchronize 20" in line or "stream 21" in line
    ]
    assert log.count("synchronize 20") == 1 and "stream 20" in launches(log)[0] and "stream 21" in launches(log)[1]


def test_a_text_for_another_gpu_is_refused_and_an_older_one_built_for_this(pretend):
    log = pretend("""
with refused("wrong-gpu"):
    launch(ADD.replace("sm_90a", "sm_100a").replace(".version 8.0", ".version 8.8"), x, y, 5, grid=1, block=32)
launch(ADD.replace("sm_90a", "sm_80"), x, y, 5, grid=1, block=32)
""")
    assert len(launches(log)) == 1


def test_more_registers_than_a_multiprocessor_has_are_refused_before_the_launch(pretend):
    log = pretend("""
from warploom.driver import resources
real = resources.Resources.occupancy
resources.Resources.occupancy = lambda self, threads, smem: resources.occupancy("sm_90a", threads, 128, smem)
with refused("launch-shape"):
    launch(ADD, x, y, 5, grid=1, block=1024)
""")
    assert not launches(log) and "load ELF" not in log


def test_mixed_devices_and_host_arrays_are_refused_by_name(pretend):
    pretend("""
with refused("wrong-device") as caught:
    launch(ADD, x, y.array, 5, grid=1, block=32)
assert "`a` on cuda:0" in str(caught.value) and "`c` on the CPU" in str(caught.value)
with refused("wrong-device"):
    launch(ADD, x.array, y.array, 5, grid=1, block=32)
with refused("wrong-device"):
    emulate(ADD, x, y, 5, grid=1, block=32)
""")


@pytest.mark.parametrize("variables", [{"FAKE_CUDA_INIT": 100}, {"FAKE_CUDA_DEVICES": 0}])
def test_no_gpu_is_one_sentence_that_names_the_emulator(pretend, variables):
    pretend(
        """
with pytest.raises(errors.NoGpuError) as caught:
    launch(ADD, x.array, y.array, 5, grid=1, block=32)
text = str(caught.value)
assert "no GPU" in text and "emulator can run it" in text and "\\n" not in text
assert not library.available()
""",
        **variables,
    )


def test_the_driver_s_own_compiler_is_a_warning_and_never_silent(pretend):
    log = pretend("""
from warploom.driver import toolchain, compile as compiler
toolchain._places = lambda name: iter(())
with pytest.warns(errors.CompilerFallbackWarning):
    build = compiler.build(ADD)
assert build.compiler == "driver 13.0" and build.resources["add"].registers == 12
assert build.cubin == b"\\x7fELF of the driver"
with pytest.warns(errors.CompilerFallbackWarning), pytest.raises(errors.CompilationError) as caught:
    compiler.build(ADD.replace("ld.global.f32 %f1", "ld.global.f32 %f77"))
assert "add.py:11" in str(caught.value) and "Unknown symbol" in str(caught.value)
""")
    assert log.count("link 1 1 kernel.ptx") == 2


TORCH = """
import torch
from dataclasses import replace
from warploom.runtime import arrays
true_view = arrays._torch_view
arrays._torch_view = lambda tensor, name: replace(true_view(tensor, name), device="cuda", index=0, host=None)
torch._C._cuda_getCurrentRawStream = lambda index: 0xA0

from warploom.types import f32, u32
from warploom.runtime import ArraySpec, Parameter, Caller, Program, validate
checks = []
def check_dims(dims): checks.append(dict(dims))
program = Program(ADD, "add", arrays=(ArraySpec("a", ("n",), f32), ArraySpec("c", ("n",), f32, "out")),
                  parameters=(Parameter("a", "pointer", f32), Parameter("c", "pointer", f32), Parameter("n", "scalar", u32)),
                  grid=lambda dims, machine: (dims["n"] // 32,), block=(32,), check_dims=check_dims)
call = Caller(program)
sets = [(torch.zeros(64), torch.zeros(64)) for _ in range(3)]
""".replace("from warploom.types import", "from warploom.isa.dtypes import")


@pytest.fixture
def with_torch(pretend):
    """Run a script in which torch's CPU tensors count as GPU tensors."""
    pytest.importorskip("torch")
    return lambda script: pretend(TORCH + script, imported=IMPORTED)


def test_a_call_with_known_arrays_is_not_checked_again(with_torch):
    log = with_torch("""
for _ in range(5):
    for a, c in sets:
        assert call(a, out=c) is c
assert len(checks) == 1, "other memory of the same kind is not checked either"
for a, c in sets:
    assert call(a, c) is c
    assert call(a, c, stream=0xB0) is c
assert len(checks) == 2
""")
    assert len(launches(log)) == 21 and log.count("load ELF") == 1
    assert sum("stream a0" in line for line in launches(log)) == 18
    assert sum("stream b0" in line for line in launches(log)) == 3


def test_numbers_by_name_are_remembered_by_their_values(with_torch):
    log = with_torch("""
program = replace(program, arrays=tuple(replace(one, shape=("m",)) for one in program.arrays),
                  grid=lambda dims, machine: (dims["m"] // 32,))
call = Caller(program)
for _ in range(3):
    for a, c in sets:
        assert call(a, out=c, n=64) is c
assert len(checks) == 1
for _ in range(2):
    call(a, out=c, n=32), call(a, 16, out=c), call(a, n=8)
assert len(checks) == 4, "another number, a number by place, an output that is made"
""")
    assert len(launches(log)) == 9 + 6


def test_another_shape_dtype_or_stride_at_the_same_address_is_checked(with_torch):
    with_torch("""
a, c = sets[0]
call(a, out=c)
with refused("wrong-shape"):
    call(a, out=c[:32])
with refused("wrong-type"):
    call(a, out=c.view(torch.int32))
with refused("wrong-layout"):
    call(a[::2], out=c[:32])
with refused("overlap"):
    call(a, out=a)
with refused("wrong-device"):
    call(a, out=c.numpy())
assert call(a, out=c) is c
""")


def test_an_output_that_wants_a_gradient_is_refused_also_where_the_call_is_known(with_torch):
    log = with_torch("""
a, c = sets[0]
for known in (False, True):
    c.requires_grad = True
    for arguments in (((a,), {"out": c}), ((a, c), {})):
        with refused("not-writable"):
            call(*arguments[0], **arguments[1])
    a.requires_grad, c.requires_grad = True, False  # that of an input is the caller's own affair
    assert call(a, out=c) is c and call(a, c) is c
c.requires_grad = True
with torch.no_grad():
    assert call(a, out=c) is c
""")
    assert len(launches(log)) == 5


def test_outputs_that_are_left_out_are_made_by_torch_each_time(with_torch):
    log = with_torch("""
a, _ = sets[0]
results = [call(a) for _ in range(4)]
assert len({result.data_ptr() for result in results}) == 4 and all(result.shape == (64,) for result in results)
assert len(checks) == 1
""")
    assert len(launches(log)) == 4


def test_threads_may_share_a_call(with_torch):
    log = with_torch("""
failures = []
def work():
    try:
        for _ in range(50):
            for a, c in sets: assert call(a, out=c) is c
    except BaseException as error: failures.append(error)
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
assert not failures, failures
""")
    assert len(launches(log)) == 4 * 50 * 3 and log.count("load ELF") == 1


@pytest.mark.sample(1, all=2)
@pytest.mark.parametrize(("capability", "words"), [
    (80, "it can run rungs 1, 2, 3, 4, 5, 6 of the ladder"), (100, "it can run rungs 1, 2, 3, 4, 5, 6 of the ladder"),
    (75, "it can run none of the ladder's rungs"),
])  # fmt: skip
def test_another_gpu_that_is_asked_for_a_hopper_rung_says_which_it_can_run(pretend, capability, words):
    """Also where clusters, which begin with Hopper, would be refused."""
    log = pretend(
        f"""
from warploom.kernels.ladder import RUNGS
a, b, c = (Cuda(np.zeros((64, 64), np.uint16)) for _ in range(3))
for rung in RUNGS[6:]:
    kernel = rung.build()
    with pytest.raises(errors.ArgumentError) as caught:
        kernel(a, b, out=c)
    text = str(caught.value)
    for part in (kernel.name, "is for sm_90a, but this GPU is sm_{capability}", {words!r}, "warploom.emulate"):
        assert part in text, (part, text)
""",
        FAKE_CUDA_CAPABILITY=capability,
    )
    assert not launches(log)


PERSISTENT_CLUSTERS = """
from warploom import Tile, kernel, ptx
from warploom.collective.tile.sizes import persistent_grid
from warploom.types import f32

@kernel(in_specs=(Tile("M", "N", f32),), out_specs=(), grid=persistent_grid((1, 1), 4, "b"), block=32, cluster=(4, 1, 1),
        arch="sm_90a")
def walks(A):
    (a,) = ptx.global_ptrs(A)
    ptx.store(ptx.addr(a), ptx.load(f32, ptx.addr(a)))

for rows in (512, 1024):
    walks(Cuda(np.zeros((rows, 4), np.float32)))
"""


@pytest.mark.parametrize("refuses, sms, ctas", [(0, 132, 4 * 30), (1, 132, 4 * 30), (0, 76, 4 * 16), (1, 76, 4 * 17)])
def test_a_persistent_grid_has_no_more_clusters_than_run_at_one_time(pretend, refuses: int, sms: int, ctas: int):
    """The driver is asked once; without an answer, an H200's number is used: 33 clusters of four would take two waves
    on it, where 30 fit."""
    log = pretend(PERSISTENT_CLUSTERS, FAKE_CUDA_OCCUPANCY=refuses, FAKE_CUDA_SMS=sms)
    assert [line.split()[2] for line in launches(log)] == [str(ctas)] * 2
    assert log.count("occupancy smem 232448 cluster 4") == 1
