"""What a program with a pretended device prints, as the launch description of its kernel.

The kernel takes structures by value, and scalars. Tensor maps and pointers in it are known by their bytes, see
pretended_device.hpp; a pointer to values that the host has copied leads to more of them.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from .configurations import Expected

FIRST_ADDRESS = 0x5A00_4000_0000
"""Of the first buffer, each in 4 GiB of its own, as in pretended_device.hpp: a small number that stands beside the
upper half of an address, as in the gaps of a structure, is no address."""
MAP_BYTES, MAP_FILLER, MAP_TAIL = 128, 0xA7, 12
"""A map is its number and this byte; CUTLASS itself may change some of the bytes before MAP_TAIL."""
DTYPES = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16", "f32", "tf32", "tf32")
"""By CUtensorMapDataType."""
SIZES = {"u8": 1, "u16": 2, "f16": 2, "bf16": 2, "u32": 4, "s32": 4, "f32": 4, "tf32": 4, "u64": 8, "s64": 8, "f64": 8}
SWIZZLES = ("NONE", "32B", "64B", "128B")

Table = dict[str, Any]


def described(launch: Mapping[str, Any], expected: Sequence[Expected] = ()) -> str:
    """The text of a launch description.

    launch: perhaps entry; grid, block, cluster, dynamic_smem in bytes, parameters (structures as hexadecimal digits,
    scalars as dtype and value), maps, buffers. Raises ValueError where an address is in no buffer or a map cannot be
    described.
    """
    top = {key: launch[key] for key in ("entry", "grid", "block", "cluster", "dynamic_smem") if key in launch}
    parts, lines = _Parts(launch["maps"], launch["buffers"]), _entries(top)
    for each in launch["parameters"]:
        table = {"kind": "scalar", **each} if isinstance(each, Mapping) else parts.structure(bytes.fromhex(each))
        lines += ["", "[[parameter]]", *_lines(table, "parameter")]
    for each in expected:
        table: Table = {"name": each.name, "value": each.value}
        if each.tolerance:
            table |= {"rtol": each.tolerance, "atol": each.tolerance}
        lines += ["", "[[expect]]", *_entries(table)]
    return "\n".join(lines) + "\n"


class _Parts:
    """Finds maps and pointers in bytes; an array is described where it comes first, and named from then on."""

    def __init__(self, maps: Sequence[Mapping[str, Any]], buffers: Sequence[Mapping[str, Any]]) -> None:
        self.maps, self.buffers = maps, buffers
        self.known: set[str] = set()
        self.numbers = count(1)

    def structure(self, data: bytes) -> Table:
        table: Table = {"kind": "bytes", "size": len(data), "hex": data.hex()}
        if at := self.parts(data):
            table["at"] = at
        return table

    def parts(self, data: bytes) -> dict[int, Table]:
        """Maps and pointers by their offsets in bytes; those into the middle of a buffer behind its beginning."""
        maps: dict[int, Mapping[str, Any]] = {}
        pointers: dict[int, tuple[Mapping[str, Any], int]] = {}
        at = 0
        while at + 8 <= len(data):
            if at % 64 == 0 and (found := self.map_in(data[at : at + MAP_BYTES])) is not None:
                maps[at] = found
                at += MAP_BYTES
                continue
            if (target := self.target(struct.unpack_from("<Q", data, at)[0])) is not None:
                pointers[at] = target
            at += 8
        found_parts = {at: self.tensor_map(one) for at, one in maps.items()}
        later = sorted(pointers.items(), key=lambda each: (each[1][1] != 0, each[0]))
        return found_parts | {at: self.pointer(buffer, offset) for at, (buffer, offset) in later}

    def map_in(self, data: bytes) -> Mapping[str, Any] | None:
        if data[MAP_TAIL:] != bytes([MAP_FILLER]) * (MAP_BYTES - MAP_TAIL):
            return None
        number = struct.unpack_from("<I", data)[0]
        return self.maps[number] if number < len(self.maps) else None

    def target(self, address: int) -> tuple[Mapping[str, Any], int] | None:
        """The buffer of an address, and bytes from its beginning."""
        number, offset = divmod(address - FIRST_ADDRESS, 1 << 32)
        if not 0 <= number < len(self.buffers):
            return None
        buffer = self.buffers[number]
        size = len(buffer["bytes"]) // 2 or math.prod(buffer["shape"]) * SIZES[buffer["dtype"]]
        return (buffer, offset) if offset < size else None

    def pointer(self, buffer: Mapping[str, Any], offset: int) -> Table:
        if buffer["bytes"]:
            return self.structure(bytes.fromhex(buffer["bytes"]))
        name, first = buffer["name"], offset // SIZES[buffer["dtype"]]
        rest = [math.prod(buffer["shape"]) - first]
        if name in self.known:
            table: Table = {"kind": "buffer", "name": self.view(name), "same_as": name}
            return table | ({"offset": first, "shape": rest} if first else {})
        if first:  # nothing points to its beginning
            name += f"_from_{first}"
        self.known.add(name)
        shape = rest if first else buffer["shape"]
        return {"kind": "buffer", "name": name, "dtype": buffer["dtype"], "shape": shape, "fill": buffer["fill"]}

    def tensor_map(self, one: Mapping[str, Any]) -> Table:
        target = self.target(one["address"])
        if target is None:
            raise ValueError(f"a tensor map begins at {one['address']:#x}, which is in no buffer")
        buffer, offset = target
        name, dtype, fill = buffer["name"], buffer["dtype"], buffer["fill"]
        if buffer["bytes"]:
            # A map which the kernel overwrites before its use is encoded with the address of an array of pointers.
            name, dtype, fill, offset = self.view(name), DTYPES[one["dtype"]], "zeros", 0
        size = SIZES[dtype]
        shape, strides = one["sizes"][::-1], [*(stride // size for stride in one["strides"][::-1]), 1]
        table: Table = {"kind": "tensor_map"}
        if name in self.known:
            table |= {"name": self.view(name), "same_as": name, "dtype": dtype, "shape": shape, "strides": strides}
            if offset:
                table["offset"] = offset // size
        elif offset:
            raise ValueError(f"a tensor map begins {offset} bytes into `{name}`, to whose beginning nothing points")
        else:
            self.known.add(name)
            table |= {"name": name, "dtype": dtype, "fill": fill, "shape": shape}
            if not _dense(shape, strides):
                table["strides"] = strides
        return table | {"box": one["box"], "swizzle": SWIZZLES[one["swizzle"]]}

    def view(self, name: str) -> str:
        return f"{name}_again_{next(self.numbers)}"


def _dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether elements lie side by side, whatever the strides of sizes of 1 are."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _lines(table: Mapping[str, Any], name: str) -> list[str]:
    """A table of TOML, and those of its parts behind it."""
    lines = _entries({key: value for key, value in table.items() if key != "at"})
    for offset, part in table.get("at", {}).items():
        lines += ["", f"[{name}.at.{offset}]", *_lines(part, f"{name}.at.{offset}")]
    return lines


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [f'{key} = "{value}"' if isinstance(value, str) else f"{key} = {value}" for key, value in table.items()]
