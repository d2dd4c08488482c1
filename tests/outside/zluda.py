"""ZLUDA's run tests: kernels of one instruction, their input and expected output in `spirv_run/mod.rs`.

Each `test_ptx!(name, [input], [output])` runs NAME.ptx with one thread, `test_ptx_warp!(name, [output])` with 64
threads and no input, both with 1024 bytes of dynamic shared memory. The values are literals of Rust.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import warploom
from warploom import asm
from warploom.errors import WarploomError

SHARED = 1024
_TEST = re.compile(r"^test_ptx(?P<kind>_warp|_with_32)?!\(\s*(?P<name>\w+),?", re.MULTILINE)
_LITERAL = re.compile(
    r"\b(?P<digits>0x[0-9a-fA-F_]+?|0b[01_]+?|[0-9][0-9_]*(?:\.[0-9_]*)?(?:e[+-]?[0-9]+)?)"
    r"(?P<type>u8|u16|u32|u64|i8|i16|i32|i64|f32|f64)?(?![\w.])"
)


@dataclass(frozen=True)
class Case:
    """One test: input None for the tests of a warp."""

    name: str
    text: str
    input: np.ndarray | None
    output: np.ndarray
    threads: int


@dataclass(frozen=True)
class Verdict:
    """What came of a case: "same", "differs", "refused" (by the verifier) or "stopped" (by the emulator), and why."""

    case: str
    result: str
    why: str = ""


def cases(folder: Path) -> Iterator[Case]:
    """The cases with values below a checkout."""
    (source,) = folder.rglob("spirv_run/mod.rs")
    text = re.sub(r"//[^\n]*", "", source.read_text())
    for found in _TEST.finditer(text):
        arrays = _arrays(text[found.end() :])
        if not arrays:
            continue  # compiled only
        warp = found["kind"] == "_warp"
        ptx = (source.parent / f"{found['name']}.ptx").read_text()
        given = None if warp else _values(arrays[0])
        yield Case(found["name"], ptx, given, _values(arrays[-1]), 64 if warp else 1)


def run(case: Case) -> Verdict:
    """Run a case and compare."""
    try:
        module = asm.parse(case.text)
        asm.check(module)
    except WarploomError as error:
        return Verdict(case.name, "refused", error.what)
    out = np.zeros_like(case.output)
    given = out if case.input is None else case.input.copy()
    # Parameters of 64 bits are the two addresses, whatever the text calls them.
    arguments = [given, out][: len(module.entries[0].parameters)]
    try:
        warploom.emulate(
            case.text, *arguments, entry=case.name, grid=1, block=case.threads, dynamic_smem=SHARED, check=False
        )
    except WarploomError as error:
        return Verdict(case.name, "stopped", error.what)
    if np.array_equal(out, case.output):
        return Verdict(case.name, "same")
    at = int(np.flatnonzero(out != case.output)[0])
    return Verdict(case.name, "differs", f"element {at} is {out[at]!r}, not {case.output[at]!r}")


# -- Rust --------------------------------------------------------------------------------------------------------


def _arrays(text: str) -> list[str]:
    """The arrays of one macro call, inside their brackets."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        if character == "[":
            depth += 1
            start = at + 1 if depth == 1 else start
        elif character == "]":
            depth -= 1
            if depth == 0:
                found.append(text[start:at])
        elif character == ")" and depth == 0 and text[at : at + 2] == ");":
            return found
    return found


def _values(text: str) -> np.ndarray:
    """An array of Rust literals; numbers without a type take the others', or i32 and f64."""
    repeated = re.fullmatch(r"(.*);\s*(\w+)\s*", text, re.DOTALL)
    if repeated:
        return np.repeat(_values(repeated[1]), int(repeated[2].removesuffix("usize")))
    elements = [_element(each) for each in _split(text) if each.strip()]
    typed = next((each.dtype for each in elements if isinstance(each, np.generic)), None)
    if typed is None:
        typed = np.dtype(np.float64 if any(isinstance(each, float) for each in elements) else np.int32)
    with np.errstate(over="ignore"):
        return np.array([each if isinstance(each, np.generic) else _typed(each, typed) for each in elements], typed)


def _split(text: str) -> list[str]:
    """At the commas outside of parentheses."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _typed(value: Any, dtype: np.dtype) -> Any:
    if dtype.kind == "f":
        return dtype.type(value)
    bits = dtype.itemsize * 8
    return np.array(int(value) & ((1 << bits) - 1), f"u{dtype.itemsize}").view(dtype)[()]


class _Type:
    """A type of Rust's standard library, by the names that the literals use."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        if self.dtype.kind == "f":
            info = np.finfo(self.dtype)
            self.NAN, self.INFINITY = self.dtype.type(np.nan), self.dtype.type(np.inf)
            self.NEG_INFINITY, self.MIN_POSITIVE = self.dtype.type(-np.inf), info.tiny
            self.EPSILON = info.eps
        else:
            info = np.iinfo(self.dtype)  # type: ignore[assignment]
        self.MAX, self.MIN = self.dtype.type(info.max), self.dtype.type(info.min)
        self.PI = self.dtype.type(np.pi) if self.dtype.kind == "f" else 0

    def __call__(self, value: Any) -> Any:
        return _typed(value, self.dtype)

    def max_value(self) -> Any:
        return self.MAX

    def min_value(self) -> Any:
        return self.MIN

    def from_bits(self, bits: Any) -> Any:
        return np.array(int(bits), f"u{self.dtype.itemsize}").view(self.dtype)[()]

    def from_f32(self, value: Any) -> Any:
        return self.dtype.type(value)

    from_f64 = from_f32


TYPES = {
    f"{letter}{bits}": _Type(f"{word}{bits}")
    for letter, word, widths in (
        ("u", "uint", (8, 16, 32, 64)),
        ("i", "int", (8, 16, 32, 64)),
        ("f", "float", (16, 32, 64)),
    )
    for bits in widths
}


def _element(text: str) -> Any:
    """One literal: a NumPy scalar where its type is written, else a number."""
    text = re.sub(r"\b(?:std|core|half|consts)::", "", text.strip()).replace("consts::", "")
    bits = text.endswith(".to_bits()")
    text = text.removesuffix(".to_bits()").replace("::", ".")

    def literal(found: re.Match[str]) -> str:
        digits = found["digits"].replace("_", "")
        return f"{found['type']}({digits})" if found["type"] else digits

    with np.errstate(over="ignore"):
        value = eval(_LITERAL.sub(literal, text), {"__builtins__": {}}, dict(TYPES))  # literals of a checkout we chose
    return value.view(f"u{value.itemsize}") if bits else value
