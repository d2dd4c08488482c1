"""Bad input ends in a clear error: the right class, expected and passed values, nothing launched.

These are the end-to-end tests: a user's call of a kernel of the package, of their own kernel or of a PTX text.
Tests of single rules are with the layer that has them:

    dtype, rank, shape, tile, strides, alignment, aliasing     tests/runtime/test_arguments.py, test_arrays.py
    mixed devices and launch limits on a mock GPU              tests/driver/test_pretended_gpu.py
    targets, instructions they lack, wgmma n                   tests/asm/test_verifier.py, tests/lang/test_inst.py
    break and continue in traced loops                         tests/lang/test_control.py
    kernels that never write an output                         tests/lang/test_kernel.py
    truncated texts                                            tests/asm/test_parser.py, test_printer.py
    ptxas missing or failing                                   tests/driver/test_compile.py, test_toolchain.py
    the cache on a full, read-only or foreign disk, damaged    tests/driver/test_cache.py
    the command                                                tests/cli/test_commands.py
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import warploom
from benchmarks import warp_specialised
from tests.runtime.kernels import SCALE_ADD
from warploom import Tile, config, kernel, ptx, reg
from warploom.driver import cache, toolchain
from warploom.emulator.schedule.scheduler import Scheduler
from warploom.errors import (
    CacheWarning,
    CompilationError,
    WarploomError,
)
from warploom.kernels import walkthrough
from warploom.lang import Kernel
from warploom.runtime import TensorMap
from warploom.types import bf16, f32, u32

BF16 = ml_dtypes.bfloat16
GEMM = warp_specialised.build()
"""M, N, K at run time: multiples of 128, 128 and 64; A and B by TMA."""

needs_ptxas = pytest.mark.skipif(toolchain.ptxas() is None, reason="no ptxas on this machine")


def operands(m: int = 128, n: int = 128, k: int = 64) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A, B and an output that shows if anything was written to it."""
    return np.ones((m, k), BF16), np.ones((n, k), BF16), np.full((m, n), -7, np.float32)


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch):
    """`with refused("wrong-shape", "192", arrays=…)`: an error of that code, with these values, and nothing ran or
    changed."""
    launches = []
    run = Scheduler.run
    monkeypatch.setattr(Scheduler, "run", lambda self: (launches.append(self), run(self))[1])

    @contextmanager
    def expect(code: str | tuple[str, ...], *values: str, arrays: tuple[np.ndarray, ...] = ()) -> Iterator[None]:
        before = [array.tobytes() for array in arrays]
        with pytest.raises(WarploomError) as caught:
            yield
        assert caught.value.code in ((code,) if isinstance(code, str) else code), str(caught.value)
        assert [value for value in values if value not in str(caught.value)] == []
        assert [array.tobytes() for array in arrays] == before and not launches

    return expect


# -- the arguments of a call -------------------------------------------------------------------------------------


def test_a_wrong_dtype_names_argument_and_both_types(refused):
    a, b, c = operands()
    with refused("wrong-type", "`A`", "bf16", "f32", arrays=(c,)):
        GEMM(a.astype(np.float32), b, out=c)
    with refused("wrong-type", "`C`", "f32", "f64"):
        GEMM(a, b, out=c.astype(np.float64))


def test_a_wrong_rank_shows_the_shape_that_is_wanted(refused):
    a, b, c = operands()
    with refused("wrong-shape", "`A`", "rank 2", "(M, K)", "rank 3", arrays=(c,)):
        GEMM(a[None], b, out=c)
    with refused("wrong-shape", "`A`", "rank 0"):
        GEMM(np.array(1, BF16), b)


@pytest.mark.parametrize(
    "m, n, k, argument, size, multiple",
    [(192, 128, 64, "`A`", "192", "128"), (128, 96, 64, "`B`", "96", "128"), (128, 128, 80, "`A`", "80", "64")],
)
def test_a_shape_the_tile_does_not_divide_says_what_to_pad_it_to(refused, m, n, k, argument, size, multiple):
    a, b, c = operands(m, n, k)
    with refused("wrong-shape", argument, size, f"multiple of {multiple}", arrays=(c,)):
        GEMM(a, b, out=c)


def test_sizes_that_disagree_name_both_arguments(refused):
    a, _, c = operands()
    with refused("wrong-shape", "`B`", "K = 64, from argument `A`", "(128, 128)", arrays=(c,)):
        GEMM(a, np.ones((128, 128), BF16), out=c)


def test_k_of_zero_is_refused(refused):
    a, b, c = operands(k=0)
    with refused("wrong-shape", "`A`", "`K`", "0", arrays=(c,)):
        GEMM(a, b, out=c)


@pytest.mark.parametrize("m, n, k", [(128, 128, 0), (128, 128, -16), (100, 64, 16)])
def test_sizes_that_are_baked_in_are_refused_while_building(refused, m, n, k):
    with refused("argument"):
        walkthrough.build_gemm_m64n64(m, n, k)


def test_what_tma_cannot_address_is_refused_by_name(refused):
    a, b, c = operands()
    with refused("wrong-layout", "`A`", "(2, 256)", arrays=(c,)):
        GEMM(np.ones((64, 128), BF16).T, b, out=c)
    with refused("argument", "`A`", "strides[0]", "130", arrays=(c,)):  # rows of 65 elements are 130 bytes
        GEMM(np.ones((128, 65), BF16)[:, :64], b, out=c)
    with refused("wrong-layout", "`A`", "(-128, 2)", arrays=(c,)):
        GEMM(a[::-1], b, out=c)
    with refused("wrong-layout", "`C`", "(1024, 8)"):
        GEMM(a, b, out=np.zeros((128, 256), np.float32)[:, ::2])


def test_a_base_that_tma_cannot_address_is_refused_on_a_gpu_address(refused):
    class OnGpu:
        shape, device = (64, 64), type("Device", (), {"id": 0})
        __cuda_array_interface__ = {"version": 3, "data": (0x1008, False), "shape": (64, 64), "typestr": "<f2"}

    with refused("wrong-layout", "16", "0x1008"):
        TensorMap.tiled(OnGpu(), box=(64, 64), swizzle="128B")


class OnGpu:
    """What says it is in a GPU's memory; the memory is never looked at."""

    device = type("Device", (), {"id": 0})

    def __init__(self, shape: tuple[int, ...], typestr: str) -> None:
        self.__cuda_array_interface__ = {"version": 3, "data": (0x7000, False), "shape": shape, "typestr": typestr}


@kernel(
    in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(1,), block=32, arch="sm_80"
)  # fmt: skip
def copy_first(X, Y):
    x, y = ptx.global_ptrs(X, Y)
    ptx.store(ptx.addr(y), ptx.load(f32, ptx.addr(x)))


def test_arrays_on_different_devices_are_named_with_their_places(refused):
    out = np.full(32, -7, np.float32)
    with refused("wrong-device", "`X` on cuda:0", "`Y` on the CPU", arrays=(out,)):
        copy_first(OnGpu((32,), "<f4"), out=out)
    with refused("wrong-device", "`X` on cuda:0"):
        copy_first.emulate(OnGpu((32,), "<f4"), OnGpu((32,), "<f4"))


def test_a_gpu_only_option_on_arrays_of_the_cpu_is_refused(refused):
    x, y = np.ones(32, np.float32), np.full(32, -7, np.float32)
    with refused("wrong-device", "stream=", "`X` on the CPU", arrays=(y,)):
        copy_first(x, out=y, stream=0)
    with refused("no-gpu", arrays=(y,)):  # no GPU here, or the arrays are not on it
        warploom.launch(copy_first, x, y)


@pytest.mark.parametrize(
    "odd, code, got",
    [
        ([1.0] * 32, "wrong-type", "list [1.0,"),
        (memoryview(np.ones(32, np.float32)), "wrong-type", "memoryview"),
        (np.ones(32, ">f4"), "wrong-type", ">f4"),
        (np.ones(32, object), "wrong-type", "object"),
        (np.ones(32, bool), "wrong-type", "pred"),
        (np.ma.ones(32, np.float32), "wrong-type", "numpy.ma.MaskedArray"),
        (np.broadcast_to(np.float32(1), 32), "wrong-layout", "(0,)"),
        (np.ones(0, np.float32), "wrong-shape", "(0,)"),
        (None, "wrong-type", "None"),
    ],
)
def test_what_is_no_array_of_the_kind_is_refused_by_name(refused, odd, code, got):
    y = np.full(32, -7, np.float32)
    with refused(code, "`X`", got, arrays=(y,)):
        copy_first(odd, out=y)


def test_an_output_that_cannot_take_the_result_is_refused(refused):
    x = np.ones(64, np.float32)
    frozen = np.full(32, -7, np.float32)
    frozen.flags.writeable = False
    with refused("not-writable", "`Y`", arrays=(frozen,)):
        copy_first(x[:32], out=frozen)
    with refused("overlap", "`Y` and `X`", arrays=(x,)):
        copy_first(x[:32], out=x[16:48])


def test_a_tensor_without_memory_is_refused(refused):
    torch = pytest.importorskip("torch")
    with refused("wrong-device", "`X`", "meta"):
        copy_first(torch.ones(32, device="meta"))
    with refused("argument", "`X`", "torch.func"):
        torch.vmap(lambda row: copy_first(row))(torch.ones(2, 32))


@pytest.mark.parametrize("value", [np.ones(3), "3", 1j, None, 10**400])
def test_what_is_no_number_is_refused_as_a_scalar(refused, value):
    a, c = np.ones(64, np.float32), np.full(64, -7, np.float32)
    with refused("wrong-type", "`alpha`", arrays=(c,)):
        warploom.emulate(SCALE_ADD, a, a, c, 64, value, grid=1, block=64)


@pytest.mark.parametrize(
    "options, code, value",
    [
        ({"grid": 0}, "launch-shape", "grid"),
        ({"grid": 2.5}, "launch-shape", "grid"),
        ({"grid": (1, 65536)}, "launch-shape", "65535"),
        ({"block": 1025}, "launch-shape", "1024"),
        ({"block": "32"}, "launch-shape", "block"),
        ({"grid": 2, "cluster": 3}, "launch-shape", "(3, 1, 1)"),
        ({"cluster": 17}, "launch-shape", "16"),
        ({"dynamic_smem": -1}, "launch-shape", "0 to 232448"),
        ({"dynamic_smem": 1.5}, "argument-type", "dynamic_smem"),
        ({"seed": "x"}, "argument-type", "seed"),
        ({"max_steps": 0}, "argument", "max_steps"),
        ({"schedule": "exhaustive", "bound": 0}, "argument", "bound"),
        ({"schedule": "never"}, "argument", "lazy"),
        ({"numerics": "loose"}, "argument", "exact, hardware"),
        ({"machine": "h200"}, "argument-type", "H200(sms=4)"),
        ({"entry": "other"}, "not-this-text", "scale_add"),
    ],
)
def test_an_odd_launch_is_refused_with_what_it_may_be(refused, options, code, value):
    a, c = np.ones(64, np.float32), np.full(64, -7, np.float32)
    with refused(code, value, arrays=(c,)):
        warploom.emulate(SCALE_ADD, a, a, c, 64, 2.0, **{"grid": 1, "block": 64, **options})


@pytest.mark.parametrize(
    "options, code, value",
    [
        ({"clusters": "all"}, "argument-type", "clusters"),
        ({"clusters": 0}, "argument", "clusters"),
        ({"registers": 256}, "argument", "1 to 255"),
        ({"cap_watts": -1}, "argument", "cap_watts"),
        ({"cap_watts": 0}, "argument", "120 to 700 W"),
        ({"cap_watts": 5000}, "argument", "cap_watts"),
        ({"clock_mhz": float("nan")}, "argument", "clock_mhz"),
        ({"clock_mhz": 0}, "argument", "700 to 1980 MHz"),
        ({"clock_mhz": 5000}, "argument", "clock_mhz"),
        ({"clock_mhz": "1320"}, "argument", "clock_mhz"),
    ],
)
def test_an_odd_prediction_is_refused(refused, options, code, value):
    a, c = np.ones(64, np.float32), np.full(64, -7, np.float32)
    with refused(code, value, arrays=(c,)):
        warploom.predict(SCALE_ADD, a, a, c, 64, 2.0, grid=1, block=64, **options)


@pytest.mark.parametrize("box", ["ab", (64.0, 64), 64])
def test_a_box_of_anything_but_integers_is_refused(refused, box):
    with refused("argument-type", "box", repr(box)):
        warploom.TensorMap.tiled(np.zeros((64, 64), np.float32), box=box)


@pytest.mark.parametrize(
    "size, at, code", [(-1, {}, "argument"), (16, {"a": 0}, "argument-type"), (16, {-8: 0}, "argument")]
)
def test_a_structure_of_odd_places_is_refused(refused, size, at, code):
    with refused(code, "structure"):
        warploom.Struct(size, at)


@pytest.mark.parametrize(
    "changes, code, value",
    [
        ({"emulator": {"limit_s": "x"}}, "argument", "limit_s"),
        ({"emulator": {"max_steps": 0}}, "argument", "max_steps"),
        ({"emulator": {"speed": 1}}, "unknown-name", "emulator.speed"),
        ({"emulator": 3}, "argument", "config.emulator"),
        ({"colour": 1}, "unknown-name", "colour"),
        ({"cache_dir": 3}, "argument", "config.cache_dir"),
        ({"keep": ("exe",)}, "argument", "config.keep"),
    ],
)
def test_a_setting_that_is_none_is_refused_where_it_is_set(refused, changes, code, value):
    with refused(code, value), config.override(**changes):
        pass


# -- what a kernel asks of its target ----------------------------------------------------------------------------


def nothing() -> None:
    """The body of a kernel that is refused for what stands around it."""


@pytest.mark.parametrize(
    "options, code, values",
    [
        ({"cluster": (17,), "grid": (17,)}, "kernel-declaration", ("17 CTAs", "at most 16", "(17, 1, 1)")),
        ({"cluster": (2,), "arch": "sm_80"}, "kernel-declaration", ("sm_80", "sm_90")),
        ({"registers": 256}, "kernel-declaration", ("1 to 255", "256")),
        ({"registers": 128, "block": 1024}, "kernel-declaration", ("1024 threads", "1 to 64", "128")),
        ({"registers": 224, "block": 288}, "kernel-declaration", ("288 threads", "1 to 168", "224")),
        ({"block": 1056}, "kernel-declaration", ("1056 threads", "at most 1024")),
        ({"arch": "sm_91"}, "argument", ("sm_91", "sm_90a")),
        ({"arch": 90}, "argument", ("90",)),
        ({"grid": None}, "kernel-declaration", ("grid",)),
        ({"block": None}, "kernel-declaration", ("block", "None")),
        ({"name": "a b"}, "kernel-declaration", ("'a b'",)),
        ({"in_specs": Tile("N", f32)}, "kernel-declaration", ("in_specs",)),
    ],
)
def test_a_kernel_beyond_its_target_is_refused_at_its_line(refused, options, code, values):
    with refused(code, *values, Path(__file__).name):
        kernel(**{"grid": (1,), "block": 32, **options})(nothing).ptx()


def test_more_shared_memory_than_the_target_has_is_refused_before_it_runs(refused):
    with refused("shared-memory-full", "232448"):
        warp_specialised.build(warp_specialised.Config(stages=9)).ptx()
    text = SCALE_ADD.replace("{\n", "{\n.shared .b8 big[49153];\n", 1)
    c = np.full(64, -7, np.float32)
    with refused("target-lacks-it", "49153", "49152", arrays=(c,)):
        warploom.emulate(text, c, c, c, 64, 1.0, grid=1, block=64)


@pytest.mark.parametrize(
    "declaration, code, values",
    [
        (".local .b8 big[600000];", "argument", ("600000", "524288")),
        (".reg .b32 %q<9999999>;", "verification", ()),
    ],
)
def test_more_memory_than_a_thread_can_have_is_refused(refused, declaration, code, values):
    c = np.full(64, -7, np.float32)
    with refused(code, *values, arrays=(c,)):
        warploom.emulate(SCALE_ADD.replace("{\n", "{\n" + declaration, 1), c, c, c, 64, 1.0, grid=1, block=64)


@pytest.mark.parametrize("bad", ["function", "generator", "coroutine", "object"])
def test_only_a_plain_function_becomes_a_kernel(refused, bad):
    async def coroutine() -> None: ...

    def generator() -> Iterator[int]:
        yield 1

    found = {"function": print, "generator": generator, "coroutine": coroutine, "object": 3}[bad]
    with refused("kernel-declaration"):
        kernel(grid=(1,), block=32)(found)


def one_output(body) -> Kernel:
    """A kernel that runs `body` and stores what it gives back."""

    @kernel(out_specs=(Tile("N", u32),), grid=(1,), block=32, arch="sm_90a")
    def subject(C):
        value = body()
        (pointer,) = ptx.global_ptrs(C)
        ptx.store(ptx.addr(pointer), 0 if value is None else value, dtype=u32)

    return subject


def wide_wgmma() -> None:
    ptx.wgmma.mma_async(
        shape=(64, 250, 16), dtype_d=f32, dtype_a=bf16, dtype_b=bf16, d=reg.array(f32, 125), a=0, b=0
    )  # fmt: skip


@pytest.mark.parametrize(
    "body, code, values",
    [
        (lambda: ptx.inst.add.u32(reg.scalar(u32), reg.scalar(f32, 1.0), 2), "wrong-operands", (".f32", ".u32")),
        (lambda: ptx.inst.add.u32(reg.scalar(u32), 1.5, 2), "trace", ("1.5", "u32")),
        (lambda: ptx.special.tid.x() + 1.5, "trace", ("1.5",)),
        (wide_wgmma, "trace", ("250",)),
        (lambda: (ptx.special.tid.x() < 3) == 1, "trace", ("~p",)),
        (lambda: (ptx.special.tid.x() < 3) + 1, "trace", ("ptx.select",)),
        (lambda: copy_first(np.ones(32, np.float32)), "kernel-declaration", ("copy_first",)),
    ],
)
def test_a_mistake_in_a_body_names_its_line(refused, body, code, values):
    with refused(code, *values, f"{Path(__file__).name}:"):
        one_output(body).ptx()


@pytest.mark.parametrize(
    "arch, body, targets",
    [
        ("sm_90", lambda: ptx.wgmma.fence(), ("sm_90", "sm_90a")),
        ("sm_80", lambda: ptx.inst.barrier.cluster.arrive.aligned(), ("sm_80", "sm_90")),
    ],
)
def test_an_instruction_the_target_lacks_names_target_and_line(refused, arch, body, targets):
    with refused("verification", *targets, Path(__file__).name):
        kernel(grid=(1,), block=128, arch=arch)(lambda: body()).ptx()


def test_a_foreign_text_for_a_target_that_lacks_its_instruction_is_not_emulated_either(refused):
    text = SCALE_ADD.replace("sm_90a", "sm_90").replace("DONE:", "DONE: wgmma.fence.sync.aligned;")
    c = np.full(128, -7, np.float32)
    with refused("target-lacks-it", "wgmma.fence.sync.aligned", "sm_90a", arrays=(c,)):
        warploom.emulate(text, c, c, c, 128, 1.0, grid=1, block=128)


def test_break_out_of_a_traced_loop_names_the_construct_to_use(refused):
    def body() -> None:
        for _ in ptx.range(4):
            break

    with refused("python-jump", "ptx.break_()", Path(__file__).name):
        one_output(body).ptx()


def test_a_kernel_that_never_writes_its_output_is_refused_before_it_runs(refused):
    @kernel(in_specs=(Tile("N", f32),), out_specs=(Tile("N", f32),), grid=(1,), block=32)
    def forgets(X, Y):
        x, _ = ptx.global_ptrs(X, Y)
        ptx.load(f32, ptx.addr(x))

    y = np.full(32, -7, np.float32)
    with refused("output-not-written", "forgets", "Y", arrays=(y,)):
        forgets(np.ones(32, np.float32), out=y)


def test_a_register_that_outlives_its_kernel_is_refused_where_it_is_used(refused):
    kept = []
    one_output(lambda: kept.append(ptx.special.tid.x())).ptx()
    with refused("outside-kernel"):
        kept[0] += 1
    with refused("outside-kernel"):
        one_output(lambda: kept[0] + 1).ptx()


def test_a_failed_trace_leaves_the_next_one_alone():
    def fails() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        one_output(fails).ptx()
    assert one_output(nothing).emulate(np.ones(1, np.uint32)).outputs[0][0] == 0


# -- texts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [SCALE_ADD, copy_first.ptx(), GEMM.ptx()], ids=["plain", "traced", "gemm"])
def test_a_text_cut_anywhere_is_refused_in_words_and_never_runs(refused, text):
    end = text.rstrip().rindex("}")
    cuts = range(0, end, max(1, end // 400))
    c = np.full(64, -7, np.float32)
    for cut in cuts:
        with refused(("ptx-syntax", "not-this-text", "undeclared-name"), arrays=(c,)):
            warploom.emulate(text[:cut] + "\n", c, c, c, 64, 1.0, grid=1, block=64)


def test_half_a_text_is_a_syntax_error_with_line_and_column(refused):
    half = SCALE_ADD[: len(SCALE_ADD) // 2]
    with refused("ptx-syntax", f":{half.count(chr(10)) + 1}:"):
        warploom.emulate(half, grid=1, block=64)


# -- the toolchain -----------------------------------------------------------------------------------------------


def test_a_ptxas_that_is_not_there_is_named(tmp_path, refused):
    with config.override(ptxas=tmp_path / "ptxas"), refused("toolchain", str(tmp_path / "ptxas"), "WARPLOOM_PTXAS"):
        copy_first.cubin()


@needs_ptxas
def test_a_refusal_of_ptxas_shows_its_message_the_ptx_line_and_the_python_line(tmp_path):
    source = Path(copy_first.function.__code__.co_filename)
    store = next(at for at, line in enumerate(source.read_text().splitlines(), 1) if "ptx.store(ptx.addr(y)" in line)
    text = re.sub(r"st\.global\.f32 (.*), %f\d+;", r"st.global.f32 \1, %f77;", copy_first.ptx())
    line = next(at for at, line in enumerate(text.splitlines(), 1) if "%f77" in line)
    with pytest.raises(CompilationError) as caught:
        warploom.driver.compile.build(text, name="copy_first")
    said = str(caught.value)
    assert "%f77" in said and f"PTX line {line}" in said and f"{source.name}:{store}" in said


@needs_ptxas
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_cache_folder_is_a_warning(tmp_path):
    tmp_path.chmod(0o500)
    cache.builds().clear()
    with config.override(cache_dir=tmp_path / "cache"), pytest.warns(CacheWarning, match="cannot be written"):
        assert copy_first.cubin()[:4] == b"\x7fELF"


@needs_ptxas
@pytest.mark.parametrize("damage", ["cut short", "tampered with"])
def test_a_damaged_cubin_is_built_anew_for_the_one_who_asks_for_it(tmp_path, damage):
    with config.override(cache_dir=tmp_path / "cache"):
        cache.builds().clear()
        good = copy_first.cubin()
        (stored,) = [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
        data = stored.read_bytes()
        stored.write_bytes(data[:200] if damage == "cut short" else data.replace(b"\x7fELF", b"\x7fELG"))
        cache.builds().clear()
        with pytest.warns(CacheWarning, match="damaged"):
            assert copy_first.cubin() == good
        cache.builds().clear()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert copy_first.cubin() == good


# -- interrupts --------------------------------------------------------------------------------------------------

INTERRUPTED = """
import signal, sys, time
import numpy as np
import warploom
from warploom import config
from tests.runtime.kernels import SCALE_ADD

# A loop that ends after four thousand million turns, so that only the interrupt can end it.
loop = "mov.u32 %r6, 0; AGAIN: add.u32 %r6, %r6, 1; setp.ne.u32 %p, %r6, 0; @%p bra AGAIN; DONE:"
long = SCALE_ADD.replace("DONE:", loop)
a, c = np.ones(64, np.float32), np.zeros(64, np.float32)
arguments = (a, a, c, 64, 2.0)
# A process whose parent runs in the background of a shell begins with this signal ignored.
def interrupt(*_):
    global pressed
    pressed = time.process_time()
    raise KeyboardInterrupt
signal.signal(signal.SIGINT, interrupt)
print("running", flush=True)
try:
    warploom.emulate(long, *arguments, grid=1, block=64)
except KeyboardInterrupt:
    print("interrupted" if time.process_time() - pressed < 2 else "interrupted late", flush=True)
c[:] = 0
report = warploom.emulate(SCALE_ADD, *arguments, grid=1, block=64)
assert c.tolist() == [3.0] * 64 and report.counters.global_store_bytes == 256
assert np.geterr()["over"] == "warn" and config.emulator.schedule == "lazy"
print("and again", flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process there")
def test_ctrl_c_ends_an_emulation_at_once_and_the_next_one_works():
    root = Path(__file__).resolve().parents[1]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root)])}
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        time.sleep(0.7)
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
        assert process.stderr is not None
        # Not communicate(), which loses what readline has read ahead.
        rest, errors = process.stdout.read(), process.stderr.read()
        process.wait(timeout=120)
    finally:
        process.kill()
    assert (process.returncode, rest, errors) == (0, "and again\n", "")
