"""One instruction on many values: a kernel that loads operands from buffers, runs the instruction, stores its results.

    run("add.s32 %d, %a, %b;", np.int32, a=[1, 2], b=[3, 4])            # array([4, 6])
    run("setp.lt.f32 %p|%q, %a, %b;", {"p": np.bool_, "q": np.bool_}, a=..., b=...)["q"]

Registers are named after the keywords and typed by their arrays (`.b16`, `.b32`, `.b64`, `.pred` for bool), so that one
kernel serves integer and floating-point instructions alike. Thread i works on element i.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from warploom import asm
from warploom.emulator import api

_THREADS = 256


def run(
    instruction: str,
    result: object,
    *,
    arch: str = "sm_90a",
    ptx: str = "8.7",
    before: str = "",
    declare: str = "",
    threads: int = 0,
    **operands: object,
) -> np.ndarray | dict[str, np.ndarray]:
    """The results of an instruction (or several lines) for each element of the operands.

    Args:
        instruction: PTX text; operands are registers named `%name` after the keywords, results after `result`.
        result: dtype of the result `%d`, or a mapping of names to dtypes.
        before: lines that run first. declare: further declarations. threads: block size, if it matters.
        operands: arrays (or lists) of one length; a register gets one element in each thread.
    """
    results: Mapping[str, object] = result if isinstance(result, Mapping) else {"d": result}
    arrays = {name: np.atleast_1d(np.asarray(value)) for name, value in operands.items()}
    count = max((array.size for array in arrays.values()), default=threads or 32)
    block = threads or min(_THREADS, -(-count // 32) * 32)
    total = -(-count // block) * block
    inputs = {name: np.resize(array, total) for name, array in arrays.items()}
    outputs = {name: np.zeros(total, np.dtype(dtype)) for name, dtype in results.items()}
    text = kernel(instruction, inputs, outputs, arch, ptx, before, declare)
    buffers = [_stored(array) for array in (*inputs.values(), *outputs.values())]
    api.run(asm.parse(text), "one", buffers, grid=(total // block, 1, 1), block=(block, 1, 1))
    found = {
        name: buffer.view(np.dtype(dtype))[:count]
        for (name, dtype), buffer in zip(results.items(), buffers[len(inputs) :], strict=True)
    }
    return found if isinstance(result, Mapping) else found["d"]


def _stored(array: np.ndarray) -> np.ndarray:
    """The array's bytes as an unsigned integer buffer."""
    return np.ascontiguousarray(array).view(np.dtype(f"u{array.dtype.itemsize}")).copy()


def kernel(
    instruction: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    arch: str = "sm_90a",
    ptx: str = "8.7",
    before: str = "",
    declare: str = "",
) -> str:
    """The kernel's text. ptxas accepts it where it accepts the instruction."""
    names = [*inputs, *outputs]
    parameters = ", ".join(f".param .u64 p_{name}" for name in names)
    lines = [f".version {ptx}", f".target {arch}", ".address_size 64", f".visible .entry one({parameters})", "{"]
    lines += [".reg .u32 %index, %small;", ".reg .u64 %at;", declare]
    declared = set()
    for name, array in (*inputs.items(), *outputs.items()):
        if name not in declared:
            declared.add(name)
            lines.append(f".reg .{_register(array)} %{name};")
    lines += ["mov.u32 %index, %ctaid.x;", "mov.u32 %small, %ntid.x;", "mul.lo.u32 %index, %index, %small;"]
    lines += ["mov.u32 %small, %tid.x;", "add.u32 %index, %index, %small;"]
    for name, array in inputs.items():
        lines += _address(name, array)
        if array.dtype == np.bool_:
            lines += ["ld.global.u8 %small, [%at];", f"setp.ne.u32 %{name}, %small, 0;"]
        else:
            lines.append(f"ld.global.{_memory(array)} %{name}, [%at];")
    lines += [before, instruction]
    for name, array in outputs.items():
        lines += _address(name, array)
        if array.dtype == np.bool_:
            lines += [f"selp.u32 %small, 1, 0, %{name};", "st.global.u8 [%at], %small;"]
        else:
            lines.append(f"st.global.{_memory(array)} [%at], %{name};")
    return "\n".join(line for line in [*lines, "ret;", "}"] if line) + "\n"


def _address(name: str, array: np.ndarray) -> list[str]:
    return [f"ld.param.u64 %at, [p_{name}];", f"mad.wide.u32 %at, %index, {array.dtype.itemsize}, %at;"]


def _register(array: np.ndarray) -> str:
    return "pred" if array.dtype == np.bool_ else f"b{max(16, 8 * array.dtype.itemsize)}"


def _memory(array: np.ndarray) -> str:
    kind = "s" if array.dtype == np.int8 else "u" if array.dtype.itemsize == 1 else "b"
    return f"{kind}{8 * array.dtype.itemsize}"
