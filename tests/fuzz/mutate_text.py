"""Odd variants of PTX texts: bytes and tokens removed, doubled, moved, swapped, or inserted from another text."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

TOKEN = re.compile(r"[A-Za-z_$%.][\w$.:]*|-?\d\w*|\s+|.", re.DOTALL)
NUMBERS = (
    "0", "-1", "1", "2", "7", "31", "32", "33", "255", "1024", "65536", "2147483647", "-2147483648",
    "4294967296",
    "9223372036854775807", "18446744073709551616", "0x7fffffffffffffffffff", "0f7F800000",
    "0d7FF8000000000000", "1e999",
)  # fmt: skip
ODD = ("", "}", "{", ";", "@", "<", ">", "::", ".", ",", "[", "]", '"', "/*", "//", "\x00", "\u00e9", "%", "$", "\\")


def of_tokens(text: str, others: Sequence[str], seed: int) -> str:
    """A text with one to four of its tokens or lines changed."""
    draw = random.Random(seed)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        text = draw.choice((_token, _token, _token, _number, _line, _splice))(text, others, draw)
    return text


def of_bytes(text: str, seed: int) -> bytes:
    """A text with some of its bytes changed, left out or put in, or cut off."""
    draw = random.Random(seed)
    raw = bytearray(text.encode())
    for _ in range(draw.choice((1, 1, 2, 8, 64))):
        at = draw.randrange(len(raw) + 1)
        kind = draw.randrange(5)
        if kind == 0:
            raw[at : at + 1] = bytes([draw.randrange(256)])
        elif kind == 1:
            del raw[at : at + draw.choice((1, 1, 7, 100))]
        elif kind == 2:
            raw[at:at] = bytes([draw.randrange(256)])
        elif kind == 3 and at < len(raw):
            raw[at] ^= 1 << draw.randrange(8)
        else:
            start = draw.randrange(len(raw) + 1)
            raw[at:at] = raw[start : start + draw.choice((1, 16, 200))]
    return bytes(raw[: draw.randrange(len(raw) + 1)] if draw.random() < 0.05 else raw)


def _token(text: str, others: Sequence[str], draw: random.Random) -> str:
    tokens = TOKEN.findall(text)
    at = draw.randrange(len(tokens)) if tokens else 0
    kind = draw.randrange(6)
    if not tokens:
        return text
    if kind == 0:
        del tokens[at]
    elif kind == 1:
        tokens.insert(at, tokens[at])
    elif kind == 2:
        other = draw.randrange(len(tokens))
        tokens[at], tokens[other] = tokens[other], tokens[at]
    elif kind == 3:
        tokens[at] = draw.choice(TOKEN.findall(draw.choice(others)) or [""])
    elif kind == 4:
        tokens[at] = draw.choice(ODD)
    else:  # another modifier, another type: one part of a dotted word
        parts = tokens[at].split(".")
        pool = draw.choice(TOKEN.findall(draw.choice(others)) or ["x"]).split(".")
        parts[draw.randrange(len(parts))] = draw.choice(pool)
        tokens[at] = ".".join(parts)
    return "".join(tokens)


def _number(text: str, others: Sequence[str], draw: random.Random) -> str:
    found = list(re.finditer(r"(?<![\w%$.])-?\d[\w.]*", text))
    if not found:
        return text
    one = draw.choice(found)
    return text[: one.start()] + draw.choice(NUMBERS) + text[one.end() :]


def _line(text: str, others: Sequence[str], draw: random.Random) -> str:
    lines = text.split("\n")
    at, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    kind = draw.randrange(3)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    else:
        lines[at], lines[other] = lines[other], lines[at]
    return "\n".join(lines)


def _splice(text: str, others: Sequence[str], draw: random.Random) -> str:
    lines, strange = text.split("\n"), draw.choice(others).split("\n")
    at, start = draw.randrange(len(lines) + 1), draw.randrange(len(strange))
    lines[at:at] = strange[start : start + draw.choice((1, 1, 3))]
    return "\n".join(lines)
