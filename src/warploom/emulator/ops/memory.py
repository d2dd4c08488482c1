"""ld, st and their variants; generic addresses and windows; cache hints.

PTX ISA 9.7.9.8-11 and 9.7.9.15-20. The frame handles bounds, alignment and windows. A register wider than the type is
sign- or zero-extended when loaded, and gives its low bits when stored (9.4.1).
"""

from __future__ import annotations

import numpy as np

from ...asm.nodes import Operand, Register, Sink, Vector
from ...isa import dtypes
from ...isa.dtypes import DType
from ..machine.frame import Frame
from ..machine.memory import LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW, WINDOW_SIZE
from ..program.decode import Decode
from ..program.handlers import Handlers, Step

HANDLERS = Handlers()

_LOADS = ("ld.weak", "ld.weak_policy", "ld.nc", "ld.nc_policy", "ld.wide", "ld.wide_policy", "ld.wide_nc",
          "ld.wide_nc_policy", "ldu.uniform", "ld.volatile_local", "ld.volatile_local_space_first")  # fmt: skip
_POLLING_LOADS = (
    *(f"ld.ordered{order}{policy}" for order in ("", "_space_first", "_scope_first") for policy in ("", "_policy")),
    "ld.volatile", "ld.volatile_space_first", "ld.mmio", "ld.mmio_space_first", "ld.wide_volatile",
    *(f"ld.wide_ordered{order}{policy}" for order in ("", "_space_first") for policy in ("", "_policy")),
)  # fmt: skip
_STORES = (
    "st.weak", "st.weak_policy", "st.wide", "st.wide_policy", "st.volatile_local", "st.volatile_local_space_first",
    *(f"st.ordered{order}{policy}" for order in ("", "_space_first", "_scope_first") for policy in ("", "_policy")),
    "st.volatile", "st.volatile_space_first", "st.mmio", "st.mmio_space_first", "st.wide_volatile",
    *(f"st.wide_ordered{order}{policy}" for order in ("", "_space_first") for policy in ("", "_policy")),
)  # fmt: skip

_INTEGERS = {
    (16, True): dtypes.s16, (32, True): dtypes.s32, (64, True): dtypes.s64,
    (16, False): dtypes.b16, (32, False): dtypes.b32, (64, False): dtypes.b64,
}  # fmt: skip


def elements_of(operand: Operand) -> tuple[Operand, ...]:
    """The registers in an operand's braces; a bare operand as a tuple of one."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


def extended_type(d: Decode, element: Operand, dtype: DType) -> DType:
    """The type in which a loaded value fills the whole of a register that may be wider than it."""
    found = d.operation.scope.find(element.name) if isinstance(element, Register) else None
    bits = found.row.bits if found is not None and hasattr(found, "row") else dtype.register_bits
    if bits == dtype.bits:
        return dtype
    return _INTEGERS[bits, dtype.is_signed]


def _load(d: Decode) -> Step:
    dtype = d.type("d")
    address = d.address("a")
    d.operation.polled_address = address.compute
    elements = elements_of(d.operands["d"])
    count = len(elements)
    kinds = [dtype if isinstance(element, Sink) else extended_type(d, element, dtype) for element in elements]
    space = address.space
    d.operation.watched = lambda frame: frame.watch(space, address.compute(frame), dtype, count)
    if all(kind is dtype for kind in kinds) and dtype.bits >= 16:
        if count == 1:
            out = d.destination("d") if isinstance(elements[0], Sink) else d.slot_of(elements[0], dtype)

            def load_one(frame: Frame) -> None:
                frame.write(out, frame.load(space, address.compute(frame), dtype)[0])

            return load_one
        registers = d.registers("d")

        def load_exact(frame: Frame) -> None:
            registers.write(frame, frame.load(space, address.compute(frame), dtype, count))

        return load_exact
    if dtype.is_float:  # the bits of the value, with zeros above them
        dtype = dtypes.ALL[f"b{dtype.bits}"]
        kinds = [dtype if isinstance(element, Sink) else extended_type(d, element, dtype) for element in elements]
    slots = [
        d.code.scratch(kind.register_bits, kind.numpy) if isinstance(element, Sink) else d.slot_of(element, kind)
        for element, kind in zip(elements, kinds, strict=True)
    ]

    def load(frame: Frame) -> None:
        for slot, value in zip(slots, frame.load(space, address.compute(frame), dtype, count), strict=True):
            frame.write(slot, value)

    return load


HANDLERS.add(*_LOADS)(_load)
HANDLERS.add(*_POLLING_LOADS, polls=True)(_load)


@HANDLERS.add(*_STORES)
def plain_store(d: Decode) -> Step:
    """Values of registers to memory."""
    dtype = d.type("b")
    address = d.address("a")
    elements = elements_of(d.operands["b"])
    space = address.space
    if any(isinstance(element, Sink) for element in elements):
        kept = [(at, d.slot_of(element, dtype)) for at, element in enumerate(elements) if not isinstance(element, Sink)]

        def store_some(frame: Frame) -> None:
            where = address.compute(frame)
            for at, slot in kept:
                value = np.broadcast_to(frame.values[slot], frame.lanes)
                frame.store(space, where + np.uint64(at * dtype.bytes), dtype, value)

        return store_some
    if len(elements) == 1:
        value = d.slot_of(elements[0], dtype)

        def store_one(frame: Frame) -> None:
            frame.store(space, address.compute(frame), dtype, np.asarray(frame.values[value]))

        return store_one
    registers = d.registers("b")

    def store(frame: Frame) -> None:
        frame.store(space, address.compute(frame), dtype, registers.read(frame))

    return store


# -- generic addresses -------------------------------------------------------------------------------------------


def _window(space: str) -> int:
    """The start of a state space among the generic addresses; global and const addresses are generic already."""
    if space.startswith("shared"):
        return SHARED_WINDOW
    return {"local": LOCAL_WINDOW, "param": PARAM_WINDOW}.get(space.split("::")[0], 0)


@HANDLERS.add("cvta.from", "cvta.to")
def _convert_address(d: Decode) -> Step:
    source, out = d.source("a"), d.destination("d")
    base = np.uint64(_window(d.modifier("space")))
    change = np.subtract if d.match.form.key == "cvta.to" else np.add

    def convert(frame: Frame) -> None:
        frame.write(out, change(frame.values[source], base))

    return convert


@HANDLERS.add("isspacep")
def _is_space(d: Decode) -> Step:
    source, out = d.source("a"), d.destination("p")
    space = d.modifier("space").split("::entry")[0]

    def inside(frame: Frame) -> None:
        frame.write(out, in_space(frame, np.broadcast_to(frame.values[source], frame.lanes), space))

    return inside


def in_space(frame: Frame, address: np.ndarray, space: str) -> np.ndarray:
    """The generic addresses, (lanes,) uint64, that are in a state space's window (9.7.9.19)."""
    address = address.astype(np.int64)

    def within(base: int, size: int = WINDOW_SIZE) -> np.ndarray:
        return (address >= base) & (address < base + size)

    if space in ("shared", "shared::cta"):
        return within(SHARED_WINDOW + (frame.cta.rank << RANK_SHIFT), 1 << RANK_SHIFT)
    if space == "shared::cluster":
        return within(SHARED_WINDOW, frame.cta.cluster.size << RANK_SHIFT)
    if space == "local":
        return within(LOCAL_WINDOW)
    if space == "param":
        return within(PARAM_WINDOW)
    if space == "const":
        found = np.zeros(address.shape, np.bool_)
        for allocation in frame.machine.module_buffers.values():
            if not allocation.writable:
                found |= within(allocation.base, allocation.region.size)
        return found
    # A constant's address is not in the global window, as on an H200 (tests/golden/conformance.npz).
    return ~(within(SHARED_WINDOW) | within(LOCAL_WINDOW) | in_space(frame, address, "const"))


# -- caches ------------------------------------------------------------------------------------------------------


@HANDLERS.add("prefetch.line", "prefetch.priority", "prefetch.uniform", "prefetch.tensormap", "applypriority")
def _hint(d: Decode) -> Step:
    return lambda frame: None


@HANDLERS.add("discard")
def _discard(d: Decode) -> Step:
    """The line's 128 bytes become indeterminate (9.7.9.17): poison here."""
    address = d.address("a")
    poison = np.full((16, 1), np.uint64(0xFFFFFFFFFFFFFFFF))

    def discard(frame: Frame) -> None:
        frame.store(address.space, address.compute(frame), dtypes.b64, np.broadcast_to(poison, (16, frame.lanes)))

    return discard


_POLICIES = {
    "L2::evict_normal": 0x1000000000000000, "L2::evict_first": 0x12F0000000000000, "L2::evict_last": 0x14F0000000000000,
    "L2::evict_unchanged": 0x16F0000000000000,
}  # fmt: skip
"""Opaque values by primary priority; nothing may depend on them."""


@HANDLERS.add("createpolicy.fractional", "createpolicy.range", "createpolicy.convert")
def _create_policy(d: Decode) -> Step:
    out = d.destination("d")
    value = np.uint64(_POLICIES[d.modifier("primary", "L2::evict_normal")])
    return lambda frame: frame.write(out, value)
