"""The core's interface to an instruction's semantics: a decoder that returns a step, and what a step may return.

A module of `emulator.ops` holds `handlers = Handlers()` and decorates one decoder for each row (or group of rows)
of the instruction table. A decoder examines one instruction once and returns a `Step`, a function of a `Frame`
that the core calls each time the instruction runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ..machine.frame import Frame
from ..machine.wait import Wait
from .decode import Decode

Step: TypeAlias = Callable[[Frame], Wait | None]
Decoder: TypeAlias = Callable[[Decode], Step]


@dataclass(frozen=True)
class Handler:
    """A decoder, and whether threads may spin on the instruction (`polls`: one that polls alone is parked)."""

    decode: Decoder
    polls: bool = False


class Handlers:
    """Decoders by row key of the instruction table."""

    def __init__(self) -> None:
        self.by_key: dict[str, Handler] = {}

    def add(self, *keys: str, polls: bool = False) -> Callable[[Decoder], Decoder]:
        """Register the decorated decoder for these rows."""

        def register(decode: Decoder) -> Decoder:
            for key in keys:
                if key in self.by_key:
                    raise ValueError(f"two handlers for {key}")
                self.by_key[key] = Handler(decode, polls)
            return decode

        return register

    def items(self) -> Iterator[tuple[str, Handler]]:
        return iter(self.by_key.items())
