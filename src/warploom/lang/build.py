"""From a traced function to a module and a program.

Runs the kernel's function under a new `Trace`, combines prologue, body, declarations and parameters, checks the
result with the verifier, and prints it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import asm
from ..asm import nodes
from ..asm.printer import to_text
from ..emulator.machine.symbols import SharedPart, WarpRole
from ..errors import SourceLocation, TraceError, WarploomError
from ..isa import arch as isa_arch
from ..isa import dtypes
from ..isa.launch import registers_for
from ..runtime.program import WORKSPACE, ArraySpec, Parameter, Program
from ..settings import config
from . import smem
from .emit import ptx_version
from .peers import PeerArrays
from .protocol import Protocol
from .tile import ArrayHandle, Scalar, Tiles, scalar
from .trace import LocationFinder, Trace, register_class

if TYPE_CHECKING:
    from .kernel import Kernel

_misdeclared = partial(TraceError, code="kernel-declaration")


@dataclass(frozen=True)
class Built:
    """A traced kernel."""

    module: nodes.Module
    protocol: Protocol
    program: Program


def build(kernel: Kernel) -> Built:
    """Trace, assemble, check and print a kernel."""
    target = isa_arch.get(kernel.arch)
    finder = LocationFinder(kernel.function.__code__.co_filename)
    protocol = Protocol(kernel.name, kernel.block, kernel.cluster)
    trace = Trace(kernel.name, kernel.arch, ptx_version(target), finder, protocol)
    handles = _run(kernel, trace)
    arrays: list[ArrayHandle] = []
    for handle in handles:
        arrays += handle.ranks if isinstance(handle, PeerArrays) else [handle] * isinstance(handle, ArrayHandle)
    _check_outputs(kernel, trace)
    _check_dependency(kernel, trace)
    _check_registers(kernel, trace)
    parameters = _parameters(kernel, trace, arrays)
    module = _module(kernel, trace, parameters)
    asm.check(module)
    return Built(module, protocol, _program(kernel, trace, module, parameters, arrays))


# -- running the function -----------------------------------------------------------------------------------------


def _run(kernel: Kernel, trace: Trace) -> list[Any]:
    specs = (*kernel.in_specs, *kernel.out_specs)
    with trace.active():
        handles = [
            _scalar(trace, name, spec)
            if isinstance(spec, Scalar)
            else (PeerArrays if spec.peers else ArrayHandle)(trace, name, spec)
            for name, spec in zip(kernel.names, specs, strict=True)
        ]
        run_traced(trace, lambda: kernel.run(handles), kernel.function.__name__, kernel.location)
    return handles


def run_traced(trace: Trace, run: Callable[[], object], name: str, where: SourceLocation) -> None:
    """Run a kernel's function under its trace, and check that it left nothing open and returned nothing.

    name: of the function; where: its location. Errors without a location get the author's line.
    """
    with trace.active():
        try:
            returned = run()
            trace.check_closed()
            trace.check_entered()
            _check_returned(trace.name, name, where, returned)
        except WarploomError as error:
            if error.where is None:
                error.where = _user_line(trace, error.__traceback__)
            raise


def _scalar(trace: Trace, name: str, spec: Scalar) -> Any:
    return scalar(trace, name, dtypes.of(spec.dtype))


def _user_line(trace: Trace, traceback: TracebackType | None) -> SourceLocation | None:
    """The innermost line of a traceback that belongs to the author."""
    found = None
    while traceback is not None:
        name = trace.location.name_of(traceback.tb_frame.f_code.co_filename)
        if name is not None:
            found = SourceLocation(name, traceback.tb_lineno)
        traceback = traceback.tb_next
    return found


def _check_returned(kernel: str, function: str, where: SourceLocation, value: object) -> None:
    """Refuse a returned value, unless the function is a lambda, whose expression always has one."""
    if value is not None and function != "<lambda>":
        raise TraceError(
            f"the kernel {kernel} returns a value",
            where=where,
            got=repr(value),
            consequence="the value would be lost: a kernel stores its results to memory",
            hint="store it to an output: ptx.store(ptx.addr(pointer + offset), value)",
            code="value-returned",
        )


def _check_outputs(kernel: Kernel, trace: Trace) -> None:
    if "?" in trace.written:
        return  # something is stored through a pointer whose array is not known
    names = kernel.names[len(kernel.in_specs) :]
    if missing := [name for name in names if name not in trace.written]:
        raise TraceError(
            f"the kernel {kernel.name} never writes its output {missing[0]}",
            where=kernel.location,
            expected=f"a store through ptx.global_ptrs({missing[0]}), or a bulk store to {missing[0]}.tma_desc()",
            consequence="the call would return memory that nothing wrote",
            code="output-not-written",
        )


def _check_dependency(kernel: Kernel, trace: Trace) -> None:
    """Check that a launch that may overlap the previous kernel waits for it somewhere (PTX ISA 9.7.13.13)."""
    statements = nodes.walk(tuple(trace.body))
    waits = (isinstance(s, nodes.Instruction) and s.opcode == "griddepcontrol.wait" for s in statements)
    if kernel.pdl and not any(waits):
        raise TraceError(
            f"the kernel {kernel.name} is declared with pdl=True but never waits for the previous kernel",
            where=kernel.location,
            consequence="it may read memory that the previous kernel has not written yet, or overwrite its inputs",
            hint="call ptx.griddepcontrol.wait() before the first access to global memory",
            code="no-dependency-wait",
        )


def _check_registers(kernel: Kernel, trace: Trace) -> None:
    """Check that the registers the roles request with setmaxnreg fit the CTA; otherwise setmaxnreg.inc waits forever.

    A CTA has at most its share of the register file, in steps of 8 per thread (PTX ISA 9.7.19.5).
    """
    threads = kernel.block[0] * kernel.block[1] * kernel.block[2]
    target = isa_arch.get(kernel.arch)
    each = kernel.registers or registers_for(target, threads)
    asked = 0
    for role in trace.protocol.roles:
        if role.registers is None or role.warps is None:
            return
        first, last = role.warps[0], min(role.warps[1], threads // 32 - 1)
        asked += (last - first + 1) * 32 * role.registers
    if asked > each * threads:
        wants = ", ".join(f"{role.name} {role.registers}" for role in trace.protocol.roles)
        raise TraceError(
            f"the roles of {kernel.name} request more registers than the CTA has",
            where=kernel.location,
            expected=f"at most {each * threads}: {each} for each of {threads} threads at launch",
            got=f"{asked} ({wants} for each thread)",
            consequence="setmaxnreg.inc would wait for registers that no warp releases",
        )


# -- the module ----------------------------------------------------------------------------------------------------

_CLASSES = ("pred", "b8", "b16", "b32", "b64", "b128", "f32", "f64")


def declarations(trace: Trace) -> list[nodes.RegisterDeclaration]:
    """The declarations of all registers of a trace."""
    stems = {
        register_class(dtype)[0]: register_class(dtype)[1]
        for dtype in (
            dtypes.pred,
            dtypes.e2m1x2,
            dtypes.b16,
            dtypes.b32,
            dtypes.b64,
            dtypes.b128,
            dtypes.f32,
            dtypes.f64,
        )
    }
    return [
        nodes.RegisterDeclaration(declared, (stems[declared],), trace.counters[stems[declared]] + 1)
        for declared in _CLASSES
        if trace.counters.get(stems[declared])
    ]


def _module(kernel: Kernel, trace: Trace, parameters: list[Parameter]) -> nodes.Module:
    x, y, z = kernel.block
    directives = [nodes.Directive("reqntid", f"{x}, {y}, {z}")]
    if kernel.registers is not None:
        directives.append(nodes.Directive("maxnreg", str(kernel.registers)))
    if kernel.cluster != (1, 1, 1):
        directives.append(nodes.Directive("explicitcluster"))
        directives.append(nodes.Directive("reqnctapercluster", ", ".join(map(str, kernel.cluster))))
    items: list[Any] = []
    if shared := _shared_variable(trace):
        items.append(shared)
    body = [*declarations(trace), *trace.prologue, *trace.body, nodes.Instruction("ret")]
    items.append(
        nodes.Function(
            "entry",
            kernel.name,
            tuple(_declared_parameter(parameter) for parameter in parameters),
            linkage="visible",
            directives=tuple(directives),
            body=tuple(body),
        )  # fmt: skip
    )
    return nodes.Module(trace.ptx_version, (kernel.arch,), 64, tuple(items))


def _is_dynamic(trace: Trace) -> bool:
    return trace.protocol.shared_bytes > isa_arch.get(trace.arch).shared_static


def _shared_variable(trace: Trace) -> nodes.Variable | None:
    total = trace.protocol.shared_bytes
    if not total:
        return None
    align = max(trace.protocol.alignment, 16)
    if _is_dynamic(trace):
        return nodes.Variable("shared", "b8", smem.SYMBOL, (-1,), align, "extern")
    return nodes.Variable("shared", "b8", smem.SYMBOL, (total,), align)


def _declared_parameter(parameter: Parameter) -> nodes.Variable:
    if parameter.kind == "tensor_map":
        return nodes.Variable("param", "b8", parameter.name, (128,), 64)
    if parameter.kind == "pointer":
        return nodes.Variable("param", "u64", parameter.name)
    dtype = parameter.dtype or dtypes.u32
    word = dtype.name if dtype.name in ("f32", "f64") or dtype.is_integer else register_class(dtype)[0]
    return nodes.Variable("param", word, parameter.name)


# -- the program ---------------------------------------------------------------------------------------------------


def _parameters(kernel: Kernel, trace: Trace, arrays: list[ArrayHandle]) -> list[Parameter]:
    """The entry's parameters: those of each array that the PTX uses, then the named sizes, then the scalars."""
    outputs = set(kernel.names[len(kernel.in_specs) :])
    result: list[Parameter] = []
    for handle in arrays:
        writes = handle.name in outputs or handle.name in trace.written
        for name, rule in handle.maps.items():
            result.append(Parameter(name, "tensor_map", handle.dtype, handle.name, rule, writes))
        if "pointer" in handle.uses:
            result.append(Parameter(f"ptr_{handle.name}", "pointer", handle.dtype, handle.name, None, writes))
    for key, register in trace.memo.items():
        if isinstance(key, tuple) and key[0] == "size":
            result.append(Parameter(f"dim_{key[1]}", "scalar", dtypes.u32, key[1]))
        elif isinstance(key, tuple) and key[0] == "stride":
            name, *axis = key[1:]
            words = "_".join(["stride", name, *map(str, axis)])
            result.append(Parameter(words, "scalar", dtypes.u32, f"{name}.stride[{axis[0] if axis else 0}]"))
        elif isinstance(key, tuple) and key[0] == "scalar":
            result.append(Parameter(f"arg_{key[1]}", "scalar", register.dtype, key[1]))
    return result


def _array_spec(trace: Trace, handle: ArrayHandle, is_output: bool) -> ArraySpec:
    spec = handle.spec
    order = spec.order if "pointer" not in handle.uses or "stride" in handle.uses else "C"
    accessed = max(spec.dtype.bytes, trace.aligned.get(handle.name, 1))
    align = max(accessed, 16 if "map" in handle.uses else 1)
    between = accessed if "stride" in handle.uses else 1
    role = "out" if is_output else "inout" if handle.name in trace.written else "in"
    role = WORKSPACE if spec.workspace else role
    return ArraySpec(
        handle.name, spec.shape, spec.dtype, role, spec.multiple, order, align, between, may_alias=spec.may_alias,
        pads_to_16b=spec.pads_to_16b, peers=spec.peers,
    )  # fmt: skip


def _grid(kernel: Kernel) -> Any:
    """The grid rule of the program: ints unchanged, named sizes and tile counts as a function of the sizes."""
    grid = kernel.grid
    if callable(grid):
        return grid
    if isinstance(grid, (int, str, Tiles)):
        grid = (grid,)
    valid = isinstance(grid, (tuple, list)) and all(isinstance(entry, (int, str, Tiles)) for entry in grid)
    if not valid or not 1 <= len(grid) <= 3:
        raise _misdeclared(
            f"the grid of {kernel.name} is not one to three entries",
            where=kernel.location,
            expected="ints, names of sizes, tiles(...), or a function of (dims, machine)",
            got=repr(grid),
        )
    entries = tuple(Tiles(entry) if isinstance(entry, str) else entry for entry in grid)
    if all(isinstance(entry, int) for entry in entries):
        return (*entries, 1, 1)[:3]
    return _grid_function(entries)


def _grid_function(entries: tuple[Any, ...]) -> Callable[..., tuple[int, ...]]:
    def grid(dims: Any, machine: Any = None) -> tuple[int, ...]:
        counts = [entry if isinstance(entry, int) else entry.count(dims) for entry in entries]
        return tuple((*counts, 1, 1)[:3])

    return grid


def _program(
    kernel: Kernel, trace: Trace, module: nodes.Module, parameters: list[Parameter], arrays: list[ArrayHandle]
) -> Program:
    outputs = set(kernel.names[len(kernel.in_specs) :])
    code = kernel.function.__code__
    return Program(
        text=to_text(module, line_info=config.line_info),
        entry=kernel.name,
        name=kernel.name,
        arch=kernel.arch,
        parameters=tuple(parameters),
        arrays=tuple(_array_spec(trace, handle, handle.name in outputs) for handle in arrays),
        grid=_grid(kernel),
        block=kernel.block,
        cluster=kernel.cluster,
        dynamic_smem=trace.protocol.shared_bytes if _is_dynamic(trace) else 0,
        allow_spills=kernel.allow_spills,
        pdl=kernel.pdl,
        check_dims=kernel.check_dims,
        fallback_hint=kernel.fallback_hint,
        location=f"{os.path.basename(code.co_filename)}:{code.co_firstlineno}",
        shared_parts=tuple(
            SharedPart(smem.SYMBOL, b.name, b.offset, b.size, b.count, b.row_bytes, b.rows, b.swizzle)
            for b in trace.protocol.buffers
        ),
        roles=tuple(_warp_roles(trace, kernel.block[0] * kernel.block[1] * kernel.block[2])),
    )


def _warp_roles(trace: Trace, threads: int) -> Iterator[WarpRole]:
    """The roles that declare their warps; several of the same name are numbered."""
    for role in trace.protocol.roles:
        if role.warps is None:
            continue
        first, last = role.warps[0], min(role.warps[1], threads // 32 - 1)
        if not role.each or last - first < role.each:
            yield WarpRole(role.name, first, last)
            continue
        for number, start in enumerate(range(first, last + 1, role.each)):
            yield WarpRole(f"{role.name} {number}", start, start + role.each - 1)
