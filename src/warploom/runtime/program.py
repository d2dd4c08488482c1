"""A program: a PTX text together with everything that a launch of it needs.

A `Program` is pure data. A traced kernel lowers to one, `from_text` makes one from a foreign text, and both machines
accept nothing else: the emulator and the GPU get the same text, the same grid rule, the same parameter rules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..emulator.machine.symbols import SharedPart, WarpRole
from ..errors import ArgumentError, ArgumentTypeError
from ..isa import dtypes
from ..isa.dtypes import DType
from ..isa.im2col import PixelBox
from ..isa.tensor_map import TensorMapSpec

if TYPE_CHECKING:
    from ..asm import nodes
    from .machine import Machine

_wrong_text = partial(ArgumentError, code="not-this-text")

Dims: TypeAlias = Mapping[str, int]
"""Sizes by name: every symbolic dimension of the arrays ("M"), and sizes that calls add."""

Grid: TypeAlias = tuple[int, ...] | Callable[[Dims, "Machine"], tuple[int, ...]]


@dataclass(frozen=True)
class TiledMap:
    """How to make a tensor map from an array: the array's own dims and strides, innermost first, and these.

    Attributes:
        box: elements per dimension of one copy, innermost first (PTX ISA 5.5.2).
        swizzle: "NONE", "32B", "64B" or "128B".
        element_strides, interleave, oob_fill, l2_promotion: as in `isa.tensor_map.TensorMapSpec`.
        dtype: element type of the map if not the array's (fp8 bytes copied as u8, for instance).
        clipped: the box is clipped to the array in every dimension but the innermost, so that a copy from the array's
            start never exceeds its end. The kernel computes the bytes of a copy from the array's sizes.
        pixels: for copies in an im2col mode; `box` is then (channels, pixels).
    """

    box: tuple[int, ...]
    swizzle: str = "NONE"
    element_strides: tuple[int, ...] = ()
    interleave: str = "NONE"
    oob_fill: str = "ZERO"
    l2_promotion: str = "NONE"
    dtype: DType | None = None
    clipped: bool = False
    pixels: PixelBox | None = None

    def __call__(self, shape: Sequence[int], strides: Sequence[int], dtype: DType) -> TensorMapSpec:
        """The map of an array. shape: outermost first; strides: bytes, outermost first.

        The innermost dimension is the last one of the array, which must be contiguous. If the *first* dimension of an
        array is the contiguous one (a transposed view), the caller must transpose it.
        """
        box = self.box
        if self.clipped:
            box = (box[0], *(min(extent, size) for extent, size in zip(box[1:], shape[-2::-1], strict=True)))
        return TensorMapSpec.tiled(
            shape,
            strides,
            self.dtype or dtype,
            box,
            swizzle=self.swizzle,
            element_strides=self.element_strides,
            interleave=self.interleave,
            oob_fill=self.oob_fill,
            l2_promotion=self.l2_promotion,
            pixels=self.pixels,
        )


WORKSPACE = "workspace"
"""The role of an array that is never passed; see `ArraySpec.role`."""
MapRule: TypeAlias = Callable[[Sequence[int], Sequence[int], DType], TensorMapSpec]


@dataclass(frozen=True)
class ArraySpec:
    """One array argument of a call.

    Attributes:
        name: as the author wrote it.
        shape: an int is required; a str names a size, which must be the same wherever it occurs.
        dtype: element type.
        role: "in" (read), "out" (written; created by the call if it is not passed), "inout", or "workspace": never
            passed; zero before the first launch on a stream, and restored by each launch for the next one.
        multiple: per dimension, the divisor of its size; () means all ones.
        order: "C" requires a contiguous row-major array; "rows" leaves the outer strides free (as a tensor map can
            address: innermost dimension contiguous); "any" leaves everything to the kernel.
        align: bytes the address must be divisible by.
        row_align: bytes that the strides must be divisible by, but the innermost: rows begin at multiples of them.
        may_alias: name of the in array whose exact memory an out array may use: same address, shape and strides.
        pads_to_16b: nothing else uses the memory after a row, up to a multiple of 16 bytes. Tensor stores write it
            (rule `tensor-store-overhang`).
        peers: number of arrays of a group of GPUs; they follow one another by rank. 0 for a GPU's own array.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: DType
    role: str = "in"
    multiple: tuple[int, ...] = ()
    order: str = "C"
    align: int = 1
    row_align: int = 1
    may_alias: str = ""
    pads_to_16b: bool = False
    peers: int = 0

    @property
    def writes(self) -> bool:
        return self.role != "in"


@dataclass(frozen=True)
class Parameter:
    """One `.param` of the entry, in the order of the text.

    Attributes:
        name: as in the text.
        kind: "pointer" (address of an array), "scalar" (by value) or "tensor_map" (128 bytes by value).
        dtype: of the scalar, or of the array's elements; None if the text does not say.
        argument: the source of the value. pointer, tensor_map: the name of an array. scalar: a size ("M"), a
            stride in elements ("A.stride[0]"), otherwise the name of a scalar argument of the call. Empty: `name`.
        map: for a tensor map: (shape, strides in bytes, dtype) -> TensorMapSpec.
        writes: True if the kernel writes through it; None if unknown (foreign text).
        value: for a scalar computed from sizes: dims -> int. Takes precedence over `argument`.
        size: bytes of the parameter if it is a blob of a foreign text; 0 otherwise.
    """

    name: str
    kind: str
    dtype: DType | None = None
    argument: str = ""
    map: MapRule | None = None
    writes: bool | None = None
    value: Callable[[Dims], int] | None = None
    size: int = 0

    @property
    def source(self) -> str:
        return self.argument or self.name


@dataclass(frozen=True)
class Program:
    """A text and its launch.

    Attributes:
        text: PTX.
        entry: name of the kernel in it.
        name: for messages.
        arch: the text's target, "sm_90a".
        parameters: of the entry, in order.
        arrays: the arrays that a call passes, in order; () for a foreign text, whose arguments are the parameters.
        grid: CTAs (x, y, z), or dims and machine -> CTAs; () if each call gives it.
        block: threads; () if each call gives it.
        cluster: CTAs per cluster.
        dynamic_smem: bytes.
        allow_spills: accept a build with spills, or with a note that MMAs are serialised.
        pdl: launch with programmatic stream serialisation (griddepcontrol). None: not said, so without it.
        written_in_front: the arrays that the preceding grid writes, if known, for the sanitizer.
        check_dims: called with the sizes of a call; raises ArgumentError for sizes that the kernel does not support.
        location: file and line of the kernel, for messages.
        dims: sizes that the text fixes, in addition to those of the arrays.
        fallback_hint: the alternative on a GPU that cannot run it, for the error: the GPU's target ("sm_80") -> words.
        shared_parts, roles: the author's names for parts of shared memory and for warps, for messages.
        guessed: the launch description with guesses under which it runs, for messages.
    """

    text: str
    entry: str
    name: str = ""
    arch: str = "sm_90a"
    parameters: tuple[Parameter, ...] = ()
    arrays: tuple[ArraySpec, ...] = ()
    grid: Grid = ()
    block: tuple[int, ...] = ()
    cluster: tuple[int, ...] = (1, 1, 1)
    dynamic_smem: int = 0
    allow_spills: bool = False
    pdl: bool | None = None
    check_dims: Callable[[Dims], None] | None = None
    location: str = ""
    dims: tuple[tuple[str, int], ...] = ()
    fallback_hint: Callable[[str], str] | None = None
    shared_parts: tuple[SharedPart, ...] = ()
    roles: tuple[WarpRole, ...] = ()
    guessed: str = ""
    written_in_front: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        return self.name or self.entry

    @property
    def scalars(self) -> tuple[Parameter, ...]:
        """The scalar parameters that a call has to pass, after its arrays."""
        sizes = {size for array in self.arrays for size in array.shape if isinstance(size, str)}
        sizes |= {name for name, _ in self.dims}
        return tuple(
            parameter
            for parameter in self.parameters
            if parameter.kind == "scalar"
            and parameter.value is None
            and parameter.source not in sizes
            and not _STRIDE.fullmatch(parameter.source)
        )

    def program(self) -> Program:
        """Itself, so that a Program can be used wherever "anything with .program()" can."""
        return self

    @staticmethod
    def from_text(
        text: str,
        *,
        entry: str | None = None,
        name: str = "",
        grid: Grid = (),
        block: tuple[int, ...] = (),
        cluster: tuple[int, ...] = (),
        dynamic_smem: int = 0,
        allow_spills: bool = True,
        pdl: bool | None = None,
    ) -> Program:
        """The program of a PTX text. Its arguments are the entry's parameters, in order.

        `block` and `cluster` default to `.reqntid` and `.reqnctapercluster`. Trailing zero bytes, which NVRTC counts as
        part of its texts, are dropped. Raises PtxSyntaxError for a text that cannot be parsed, ArgumentError if `entry`
        must be given or does not exist.
        """
        from .. import asm
        from .entries import choose

        text = text.rstrip("\0")
        module = asm.parse(text, name=name or "<ptx>")
        function = choose(module, entry, name if name.endswith(".ptx") else "FILE.ptx")
        required = function.directive("reqntid") or ()
        in_text = function.directive("reqnctapercluster") or ()
        return Program(
            text=text,
            entry=function.name,
            name=name or function.name,
            arch=module.arch,
            parameters=tuple(_parameter(variable) for variable in function.parameters),
            grid=grid,
            block=tuple(block) or tuple(required),
            cluster=tuple(cluster) or tuple(in_text) or (1, 1, 1),
            dynamic_smem=dynamic_smem,
            allow_spills=allow_spills,
            pdl=pdl,
        )


class HasProgram(Protocol):
    """What `emulate` and `launch` accept besides texts and paths: a kernel."""

    def program(self) -> Program: ...


_STRIDE = re.compile(r"(\w+)\.stride\[(-?\d+)\]")


def stride_source(source: str) -> tuple[str, int] | None:
    """("A", 0) for "A.stride[0]", None for anything else."""
    found = _STRIDE.fullmatch(source)
    return (found[1], int(found[2])) if found else None


def program_of(what: Program | HasProgram | str | Path, *, entry: str | None = None) -> Program:
    """The program of a Program, a kernel, a PTX text, or the path of a PTX file."""
    if isinstance(what, Program):
        program = what
    elif hasattr(what, "program") and not isinstance(what, type):
        held = what.program  # a kernel makes its program; a Caller has one
        program = held() if callable(held) else held
    elif isinstance(what, (str, Path)):
        text, name = _text_and_name(what)
        return Program.from_text(text, name=name, entry=entry)
    else:
        raise ArgumentTypeError(
            "this cannot be run",
            expected="a kernel, a Program, PTX text or the path of a .ptx file",
            got=type(what).__name__,
        )
    if not isinstance(program, Program):
        raise ArgumentTypeError(".program() does not return a Program", expected="Program", got=type(program).__name__)
    if entry is not None and entry != program.entry:
        raise ArgumentError("the program has a different entry", expected=program.entry, got=entry)
    return program


def _text_and_name(what: str | Path) -> tuple[str, str]:
    if isinstance(what, str) and ("\n" in what or ".version" in what):
        return what, ""
    if what == "":
        raise _wrong_text("the PTX text is empty")
    path = Path(what)
    return read_text(path), path.name


LARGEST_TEXT = 32 << 20
"""Maximum bytes of a text: more than the largest compiler output for one file that has been seen."""
_MAGIC = {b"\x7fELF": "an ELF object (a cubin)", b"\x50\xed\x55\xba": "a fat binary", b"BC\xc0\xde": "LLVM bitcode"}


def read_text(path: Path) -> str:
    """The text of a PTX file. Raises ArgumentError if it does not exist, is too large, or is not text."""
    try:
        size = path.stat().st_size
        if size > LARGEST_TEXT:
            raise ArgumentError(
                "the file is too large to be parsed", expected=f"at most {LARGEST_TEXT} bytes", got=f"{size}: {path}",
                hint="remove the kernels that are not needed",
            )  # fmt: skip
        raw = path.read_bytes()
    except OSError as error:
        raise ArgumentError(
            f"the PTX file cannot be read: {error.strerror or error}", got=str(path), code="file"
        ) from None
    for magic, kind in _MAGIC.items():
        if raw.startswith(magic):
            raise _wrong_text(
                f"the file is not a PTX text: it is {kind}", got=str(path), hint="cuobjdump -ptx shows the text in it"
            )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _wrong_text("the file is not a PTX text: it is not UTF-8", got=str(path)) from None
    if "\0" in text.rstrip("\0"):
        raise _wrong_text("the file is not a PTX text: it has zero bytes", got=str(path))
    return text.rstrip("\0")


def _parameter(variable: nodes.Variable) -> Parameter:
    """The values that a declared `.param` takes: 128 bytes are a tensor map, a 64-bit integer an address or value."""
    name = variable.name
    dtype: Any = dtypes.ALL.get(variable.type)
    if variable.dims:
        size = dtype.bytes if dtype else 1
        for length in variable.dims:
            size *= max(length, 0)
        return Parameter(name, "tensor_map" if size == 128 else "blob", size=size)
    if dtype is not None and dtype.bits == 64 and not dtype.is_float:
        return Parameter(name, "pointer", None)
    return Parameter(name, "scalar", dtype)
