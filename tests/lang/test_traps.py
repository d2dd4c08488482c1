"""Python that looks right in a kernel but would silently be wrong is refused during tracing, with line and code."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from warploom import Kernel, Tile, kernel, ptx, reg, smem
from warploom.errors import OutOfBoundsError, TraceError
from warploom.types import bf16, f32, u32


def traced(body: Callable[..., Any]) -> Kernel:
    """The kernel of a body that takes an output Y of 32 floats."""
    return kernel(in_specs=(), out_specs=(Tile(32, f32),), grid=1, block=32, arch="sm_90a")(body)


def write(Y: Any, value: Any) -> None:
    (y,) = ptx.global_ptrs(Y)
    ptx.store(ptx.addr(y), value)


def refused(body: Callable[..., Any], code: str) -> TraceError:
    with pytest.raises(TraceError) as caught:
        traced(body).ptx()
    assert caught.value.code == code
    return caught.value


def line_of(body: Callable[..., Any], text: str) -> int:
    """The line of a file in which a body has a text."""
    lines, first = inspect.getsourcelines(body)
    return first + next(at for at, line in enumerate(lines) if text in line)


# -- a register that is rebound ------------------------------------------------------------------------------------


def loop_then_read(Y):
    s = reg.scalar(f32, 0.0)
    for _ in ptx.range(4):
        s = s + 1.0
    write(Y, s)


def branch_then_read(Y):
    s = reg.scalar(f32, 0.0)
    with ptx.if_(ptx.special.tid.x() == 0):
        s = s + 1.0
    write(Y, s)


def while_then_read(Y):
    n = reg.scalar(u32, 0)
    with ptx.while_(lambda: n < 4):
        n = n + 1
    write(Y, n.to(f32))


def number_then_read(Y):
    s = 0.0
    for _ in ptx.range(4):
        s = s + ptx.special.tid.x().to(f32)
    write(Y, s)


def next_round(Y):
    s = reg.scalar(f32, 0.0)
    for _ in ptx.range(4):
        write(Y, s)
        s = s * 2.0  # bound


def next_round_of_a_loop_around(Y):
    s = reg.scalar(f32, 0.0)
    for _ in range(2):
        write(Y, s)
        with ptx.if_(ptx.special.tid.x() == 0):
            s = s * 2.0  # bound


def predicate(Y):
    p = ptx.special.tid.x() == 0
    for _ in ptx.range(4):
        p = p & (ptx.special.tid.x() < 4)
    with ptx.if_(p):
        write(Y, reg.scalar(f32, 0.0))


@pytest.mark.parametrize(
    "body, bound, read",
    [
        (loop_then_read, "s = s + 1.0", "write(Y, s)"),
        (branch_then_read, "s = s + 1.0", "write(Y, s)"),
        (while_then_read, "n = n + 1", "write(Y, n"),
        (number_then_read, "s = s + ptx", "write(Y, s)"),
        (next_round, "# bound", "write(Y, s)"),
        (next_round_of_a_loop_around, "# bound", "write(Y, s)"),
        (predicate, "p = p &", "ptx.if_(p)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_register_rebound_in_a_block_and_read_after_it_is_refused_with_both_lines(
    body: Callable[..., Any], bound: str, read: str
) -> None:
    error = refused(body, "register-rebound")
    assert error.where.line == line_of(body, bound)
    assert str(line_of(body, read)) in error.what


def in_place(Y):
    s = reg.scalar(f32, 0.0)
    for _ in ptx.range(4):
        s += 1.0
    with ptx.if_(ptx.special.tid.x() == 0):
        s.set(s * 2.0)
    write(Y, s)


def bound_again_before_it_is_read(Y):
    t = reg.scalar(f32, 0.0)
    for _ in ptx.range(4):
        t = reg.scalar(f32, 1.0)
        write(Y, t)
    t = reg.scalar(f32, 2.0)
    write(Y, t)


def unrolled_by_python(Y):
    s = reg.scalar(f32, 0.0)
    for _ in range(4):
        s = s + 1.0
    write(Y, s)


def counted_by_python(Y):
    rounds = 0
    with ptx.if_(ptx.special.tid.x() == 0):
        rounds = rounds + 1
    write(Y, reg.scalar(f32, float(rounds)))


def names_of_a_comprehension(Y):
    s = reg.scalar(f32, 0.0)
    with ptx.if_(ptx.special.tid.x() == 0):
        s = reg.scalar(f32, 1.0)
        write(Y, s)
    values = [s for s in (reg.scalar(f32, 2.0),)]
    write(Y, values[0])


@pytest.mark.parametrize(
    "body",
    [in_place, bound_again_before_it_is_read, unrolled_by_python, counted_by_python, names_of_a_comprehension],
    ids=lambda body: body.__name__,
)
def test_what_is_right_is_traced(body: Callable[..., Any]) -> None:
    assert "st.global" in traced(body).ptx()


# -- constructs that are not entered -------------------------------------------------------------------------------


def if_without_with(Y):
    ptx.if_(ptx.special.tid.x() == 0)
    write(Y, reg.scalar(f32, 0.0))


def if_without_with_before_else(Y):
    ptx.if_(ptx.special.tid.x() == 0)
    with ptx.else_():
        write(Y, reg.scalar(f32, 0.0))


def range_without_for(Y):
    ptx.range(4)
    write(Y, reg.scalar(f32, 0.0))


def while_without_with(Y):
    n = reg.scalar(u32, 0)
    ptx.while_(lambda: n < 4)
    write(Y, reg.scalar(f32, 0.0))


@pytest.mark.parametrize(
    "body, line",
    [
        (if_without_with, "ptx.if_("), (if_without_with_before_else, "ptx.if_("), (range_without_for, "ptx.range("),
        (while_without_with, "ptx.while_("),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_a_construct_that_is_called_and_not_entered_is_refused(body: Callable[..., Any], line: str) -> None:
    assert refused(body, "block-without-with").where.line == line_of(body, line)


@pytest.mark.parametrize("name", ["if_", "elif_", "else_", "while_", "do_while"])
def test_a_construct_behind_with_that_is_not_called_is_a_sentence(name: str) -> None:
    def body(Y):
        with getattr(ptx, name):
            write(Y, reg.scalar(f32, 0.0))

    assert f"ptx.{name}" in refused(body, "block-without-call").what


# -- values and arrays ---------------------------------------------------------------------------------------------


def test_a_returned_value_is_refused() -> None:
    def body(Y):
        write(Y, reg.scalar(f32, 0.0))
        return reg.scalar(f32, 1.0)

    refused(body, "value-returned")


@pytest.mark.parametrize("use", ["Y[0] = 1.0", "Y[tid] += 1.0", "x = Y[0]", "for x in Y: pass", "Y[0, :]"])
def test_an_index_of_an_array_argument_says_how_memory_is_reached(use: str) -> None:
    def body(Y):
        exec(use, {"Y": Y, "tid": ptx.special.tid.x()})

    assert "ptx.store" in str(refused(body, "array-indexed").hint)


@pytest.mark.parametrize("function", [np.log2, np.maximum.reduce, abs, lambda x: x**2, lambda x: divmod(x, 4)])
def test_a_function_of_numpy_or_python_on_a_register_names_the_instructions(function: Callable[..., Any]) -> None:
    def body(Y):
        write(Y, function(reg.scalar(f32, 1.0)))

    refused(body, "host-function")


@pytest.mark.parametrize("function", [round, int, float, len, lambda x: f"{x:5.2f}", lambda x: max(x, 0.0)])
def test_a_value_that_python_wants_does_not_exist_yet(function: Callable[..., Any]) -> None:
    def body(Y):
        write(Y, function(reg.scalar(f32, 1.0)))

    refused(body, "no-value-yet")


def test_a_number_of_numpy_goes_with_a_register_on_either_side() -> None:
    def body(Y):
        x = reg.scalar(f32, 1.0)
        write(Y, np.float32(2) * x + x * np.float32(2) - np.float64(1))

    assert "sub.rn.f32" in traced(body).ptx()


# -- errors of a call ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", [lambda k, x: k(x), lambda k, x: k.emulate(x)], ids=["call", "emulate"])
def test_an_error_of_a_call_shows_the_caller_s_line_and_no_inner_frames(call: Callable[..., Any]) -> None:
    def body(X, Y):
        (x,) = ptx.global_ptrs(X)
        write(Y, ptx.load(f32, ptx.addr(x, 4096)))

    far = kernel(in_specs=(Tile(32, f32),), out_specs=(Tile(32, f32),), grid=1, block=32, arch="sm_90a")(body)
    with pytest.raises(OutOfBoundsError) as caught:
        call(far, np.zeros(32, np.float32))
    assert [frame.name for frame in caught.traceback][1:] in (["<lambda>", "__call__"], ["<lambda>", "emulate"])


# -- names ---------------------------------------------------------------------------------------------------------


def unpacked(Y):
    full, empty = smem.mbarrier(2), smem.mbarrier(2)
    ptx.mbarrier.init(full[0], 1)
    ptx.mbarrier.init(empty[0], 1)
    write(Y, reg.scalar(f32, 0.0))


def test_barriers_of_an_unpacking_assignment_have_their_names() -> None:
    told = traced(unpacked).protocol()
    assert "full" in told and "empty" in told


@pytest.mark.parametrize(
    "box, swizzle, got",
    [((512, 64), "NONE", 512), ((64, 0), "NONE", 0), ((7, 64), "NONE", 14), ((64, 64, 64), "NONE", "3: (64, 64, 64)"),
     ((128, 64), "128B", "256 bytes")],
)  # fmt: skip
def test_a_box_that_no_tensor_map_can_have_is_refused_where_the_kernel_is_declared(
    box: tuple[int, ...], swizzle: str, got: object
) -> None:
    with pytest.raises(TraceError, match=r"in_specs\[0\] of the kernel subject, Tile\(M, K, bf16\)") as info:

        @kernel(in_specs=(Tile("M", "K", bf16, box=box, swizzle=swizzle),), out_specs=(Tile("N", u32),), grid=(1,),
                block=32)  # fmt: skip
        def subject(A, C): ...

    assert (info.value.code, info.value.got) == ("kernel-declaration", got)
    assert str(info.value.where).startswith("test_traps.py:")


@pytest.mark.parametrize(
    "body, name",
    [
        (lambda A, tile, full: ptx.tma.load(tile[0], A.tma_desc(), full[0], (0, 0)), "coord"),
        (lambda A, tile, full: ptx.tma.load(tile[0], (0, 0), A.tma_desc(), full[0]), "src"),
        (lambda A, tile, full: ptx.tma.store(tile[0], A.tma_desc(), (0, 0)), "dst"),
    ],
)
def test_swapped_arguments_of_a_copy_are_named_at_the_author_s_line(body: Callable[..., None], name: str) -> None:
    @kernel(in_specs=(Tile("M", "K", bf16, box=(64, 64)),), out_specs=(Tile("N", u32),), grid=(1,), block=32)
    def subject(A, C):
        body(A, smem.wgmma_tile(bf16, (64, 64)), smem.mbarrier(1))

    with pytest.raises(TraceError, match=rf"`{name}` of Tma\.(load|store) is of another type") as info:
        subject.ptx()
    assert str(info.value.where).startswith("test_traps.py:")


# -- a special register without its call ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "use",
    [lambda tid: tid * 4, lambda tid: 4 + tid, lambda tid: tid == 0, lambda tid: tid < 3, lambda tid: tid.to(f32),
     range, ptx.addr],
)  # fmt: skip
def test_a_special_register_must_be_read(use: Callable[[Any], Any]) -> None:
    def body(Y):
        use(ptx.special.tid.x)

    assert "ptx.special.tid.x()" in str(refused(body, "special-not-read").expected)
