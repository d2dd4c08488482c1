"""A conformance case: a tiny kernel, its launch and its inputs, the same for the emulator and a GPU.

A case does not contain the expected result: a real GPU writes it (`record.py`), and the emulator must give the same
(`test_conformance.py`). Inputs follow from its name and `SEED`, so only outputs are stored.

At the start of a body, argument n is in %a{n} (the 64-bit address of a buffer or of a tensor map) or %s{n} (a scalar),
%t holds %tid.x and %i the thread's index in the grid (%ctaid.x * %ntid.x + %tid.x). Registers named %p0, %h0, %r0,
%f0, %rd0, %fd0, %q0 and so on are declared by their use. `@@` stands for a name unique to the kernel.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from warploom.isa.tensor_map import TensorMapSpec

PTX_VERSION = "8.7"
NEWEST = (9, 0)
"""The last PTX version that ptxas 13.0 supports; cases of later rows cannot be recorded."""
UNTOUCHED = 0xCD
"""The byte that outputs consist of before a launch."""
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}

_REGISTERS = {
    "p": "pred", "h": "b16", "r": "b32", "f": "f32", "rd": "b64", "fd": "f64", "q": "b128",
}  # fmt: skip


@dataclass(frozen=True)
class Array:
    """A buffer in global memory. data: raw bits; output: whether its contents after the launch are the result."""

    data: np.ndarray
    output: bool = False


@dataclass(frozen=True)
class Scalar:
    """A 32-bit parameter by value."""

    value: int


@dataclass(frozen=True)
class Map:
    """A tensor map over a buffer of its own. output: whether that buffer is a result."""

    data: np.ndarray
    spec: TensorMapSpec
    output: bool = False


@dataclass(frozen=True)
class Block:
    """Bytes by value, `argument{n}` in the parameter space, aligned to 16."""

    data: bytes


Argument: TypeAlias = Array | Scalar | Map | Block


def output(shape: int | Sequence[int], dtype: type) -> Array:
    """A result buffer, untouched."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return Array(np.full(count, UNTOUCHED, np.uint8).view(dtype).reshape(shape), output=True)


@dataclass(frozen=True)
class Tolerance:
    """How far the emulator may be off: |emulated - recorded| <= relative * |recorded| + absolute; what is no finite
    number agrees exactly. dtype: "f16", "bf16", "f32" or "f64"; halves of packed values count one by one."""

    dtype: str
    relative: float
    absolute: float = 0.0


@dataclass(frozen=True, eq=False)
class Case:
    """One kernel.

    Attributes:
        name: unique; "family/row/part".
        rows: keys of the instruction table's rows that it shows.
        body: PTX, as the module's docstring says.
        arguments: makes them, the same each time.
        kinds: of the parameters: "array", "scalar", "map", or "block64" for a block of 64 bytes.
        threads, grid, cluster, dynamic_smem: the launch; grid and cluster along x.
        labels: for results of shape (labels, …): the instruction that made each row.
        tolerances: label -> Tolerance, where the emulator does not give the same bits.
        directives: behind the parameter list. before: declarations at the module's level.
        exact_bound: how far numerics="exact" may be from the hardware's in the first row of results.
        extent, grid_extent, cluster_extent: in (x, y, z), instead of `threads`, `grid` and `cluster`.
    """

    name: str
    rows: tuple[str, ...]
    body: str
    arguments: Callable[[], tuple[Argument, ...]]
    kinds: tuple[str, ...]
    threads: int = 32
    grid: int = 1
    cluster: int = 1
    dynamic_smem: int = 0
    labels: tuple[str, ...] = ()
    tolerances: dict[str, Tolerance] = field(default_factory=dict)
    directives: str = ""
    before: str = ""
    target: str = "sm_90a"
    extent: tuple[int, int, int] | None = None
    grid_extent: tuple[int, int, int] | None = None
    cluster_extent: tuple[int, int, int] | None = None
    exact_bound: Tolerance | None = None

    @property
    def family(self) -> str:
        return self.name.split("/")[0]

    @property
    def block(self) -> tuple[int, int, int]:
        return self.extent or (self.threads, 1, 1)

    @property
    def ctas(self) -> tuple[int, int, int]:
        return self.grid_extent or (self.grid, 1, 1)

    @property
    def cluster_shape(self) -> tuple[int, int, int]:
        return self.cluster_extent or (self.cluster, 1, 1)

    def entry(self, name: str = "k") -> str:
        """The kernel's text (with what it declares at the module's level) under a name."""
        heads, loads = [], []
        for number, kind in enumerate(self.kinds):
            parameter = f"argument{number}"
            if kind == "map":
                heads.append(f".param .align 64 .b8 {parameter}[128]")
                loads += [f".reg .b64 %a{number};", f"mov.b64 %a{number}, {parameter};"]
                loads.append(f"cvta.param.u64 %a{number}, %a{number};")
            elif kind == "array":
                heads.append(f".param .u64 {parameter}")
                loads += [f".reg .b64 %a{number};", f"ld.param.u64 %a{number}, [{parameter}];"]
            elif kind.startswith("block"):
                heads.append(f".param .align 16 .b8 {parameter}[{kind.removeprefix('block')}]")
            else:
                heads.append(f".param .u32 {parameter}")
                loads += [f".reg .b32 %s{number};", f"ld.param.u32 %s{number}, [{parameter}];"]
        lines = [f".visible .entry {name}({', '.join(heads)}) {self.directives}", "{"]
        lines += _declarations(self.body)
        lines += [".reg .b32 %t, %i;", *loads, "mov.u32 %t, %tid.x;", "mov.u32 %i, %ctaid.x;"]
        lines += [f"mad.lo.u32 %i, %i, {self.threads}, %t;", self.body.strip("\n"), "ret;", "}"]
        text = "\n".join([*([self.before] if self.before else []), *lines]) + "\n"
        return text.replace("@@", name)

    def text(self) -> str:
        """A whole text with this kernel alone, named `k`."""
        return header(self.target) + self.entry()

    def digest(self) -> str:
        """Changes when the text, the launch or an input changes; a recording is for one digest."""
        found = hashlib.sha256()
        launch = (self.ctas, self.block, self.cluster_shape, self.dynamic_smem, self.labels)
        found.update(f"{self.text()}{launch}".encode())
        for argument in self.arguments():
            if isinstance(argument, Scalar):
                found.update(str(argument.value).encode())
            elif isinstance(argument, Block):
                found.update(argument.data)
            else:
                found.update(np.ascontiguousarray(argument.data).tobytes())
                found.update(
                    f"{argument.spec}{argument.spec.pixels or ''}".encode() if isinstance(argument, Map) else b""
                )
        return found.hexdigest()[:16]


def header(target: str) -> str:
    return f".version {PTX_VERSION}\n.target {target}\n.address_size 64\n"


def module_text(cases: Sequence[Case]) -> str:
    """One text for many cases of one target; case n is the entry `c{n}`."""
    return header(cases[0].target) + "".join(case.entry(f"c{number}") for number, case in enumerate(cases))


def _declarations(body: str) -> list[str]:
    highest: dict[str, int] = {}
    for kind, number in re.findall(r"%(rd|fd|p|h|r|f|q)(\d+)\b", body):
        highest[kind] = max(highest.get(kind, 0), int(number))
    return [f".reg .{_REGISTERS[kind]} %{kind}<{number + 1}>;" for kind, number in sorted(highest.items())]


def results(arguments: Sequence[Argument]) -> dict[str, np.ndarray]:
    """The result buffers among arguments, by the number of the argument, flat and as raw bits."""
    found = {}
    for number, argument in enumerate(arguments):
        if isinstance(argument, (Array, Map)) and argument.output:
            data = np.ascontiguousarray(argument.data)
            found[str(number)] = data.view(UNSIGNED[data.itemsize])
    return found
