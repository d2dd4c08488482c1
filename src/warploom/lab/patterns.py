"""The cost of a warp's access for a typed pattern: addresses as an expression of `lane`."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..emulator.machine.counters import BANK_COUNT, BANK_WIDTH, SECTOR, bank_conflicts, global_sectors
from ..errors import ArgumentError
from ..plural import counted

LANES = 32
SIZES = (1, 2, 4, 8, 16)
_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.BitXor: operator.xor, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.USub: operator.neg,
}  # fmt: skip


@dataclass(frozen=True)
class Access:
    """One access of a warp.

    Attributes:
        addresses: bytes, (32,); size: bytes of each lane.
        conflicts: extra shared-memory passes beyond the first of each group of lanes.
        sectors: 32-byte sectors that it accesses in global memory; useful: share of their bytes that a lane requested.
        banks: the bank of each lane's first word.
    """

    addresses: np.ndarray
    size: int
    conflicts: int
    sectors: int
    useful: float
    banks: np.ndarray


def addresses(expression: str) -> np.ndarray:
    """Byte addresses of the 32 lanes: numbers, `lane`, + - * // % ^ & | << >> and parentheses.

    Raises ArgumentError for anything else, and for an address below 0.
    """
    try:
        found = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, OverflowError, ValueError, MemoryError, RecursionError) as error:
        raise ArgumentError(
            "this is not an address",
            expected="an expression such as lane * 4, or (lane ^ lane // 8) * 16",
            got=expression,
        ) from error
    made = np.broadcast_to(np.asarray(found, np.int64), (LANES,)).copy()
    if made.min() < 0:
        raise ArgumentError("an address is below 0", got=f"{expression} = {int(made.min())} for a lane")
    return made


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 1 << 40:
        return node.value
    if isinstance(node, ast.Name) and node.id == "lane":
        return np.arange(LANES, dtype=np.int64)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, (ast.LShift, ast.RShift)) and not 0 <= int(np.max(right)) < 40:
            raise ValueError("a shift by that much")
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and np.any(np.asarray(right) == 0):
            raise ZeroDivisionError
        return _OPERATORS[type(node.op)](left, right)
    raise SyntaxError(ast.dump(node))


def access(where: np.ndarray, size: int) -> Access:
    """The cost of an access of `size` bytes per lane at these addresses, as the emulator counts it."""
    if size not in SIZES or np.any(where % size):
        raise ArgumentError(
            "an address is not a multiple of the access size",
            expected=f"size one of {SIZES}",
            got=counted(size, "byte"),
        )
    lanes = np.arange(LANES)
    _, sectors = global_sectors(lanes, where, size)
    asked = np.unique(where[:, None] + np.arange(size)).size
    return Access(
        where, size, bank_conflicts(lanes, where, size), sectors, asked / (sectors * SECTOR),
        where // BANK_WIDTH % BANK_COUNT,
    )  # fmt: skip
