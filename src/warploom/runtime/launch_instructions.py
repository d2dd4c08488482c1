"""What the instructions of a text show about a launch beside its addresses: threads, operand types of products, and
which arrays hold counters."""

from __future__ import annotations

import re

from ..asm import nodes
from .launch_steps import Steps

_MOST_THREADS = 1024
_WARP = 32
_PRODUCT = re.compile(r"\.(e4m3|e5m2|bf16|f16|tf32|f32|f64|s32|s8|u8)(?=\.|$)")
_POLLED = re.compile(r"^ld\.(volatile|acquire|relaxed)\b")


def counted_threads(function: nodes.Function) -> int:
    """The most threads that a barrier of a CTA counts, in whole warps; 0 if none counts any."""
    steps = Steps(function)
    most = 0
    for at, one in enumerate(steps.instructions):
        word = one.opcode.split(".")[0]
        if word not in ("bar", "barrier") or ".cluster" in one.opcode or ".warp" in one.opcode:
            continue
        place = 2 if ".red" in one.opcode else 1
        if len(one.operands) > place + (".red" in one.opcode):
            most = max(most, steps.constant(one.operands[place], at) or 0)
    return -(-most // _WARP) * _WARP if most <= _MOST_THREADS else 0


def operand_type(function: nodes.Function) -> str:
    """The type of the first operand of a text's matrix products, if all have the same; otherwise ""."""
    found = set()
    for one in nodes.instructions_of(function):
        types = _PRODUCT.findall(one.opcode) if one.opcode.split(".")[0].endswith("mma") else ()
        if len(types) > 2:  # result, first operand, second operand
            found.add(types[1])
    return found.pop().replace("tf32", "f32") if len(found) == 1 else ""


def is_counter(opcode: str) -> bool:
    """True for an instruction on a counter or flag: an atomic operation, or a load that polls."""
    return opcode.split(".")[0] in ("atom", "red") or _POLLED.match(opcode) is not None
