"""GPU generations: limits, minimum PTX version, features.

Limits are those of the CUDA C++ Programming Guide's table "Technical Specifications per Compute Capability"; minimum
PTX versions those of PTX ISA 11.1.2 (`.target`). A target with suffix `a` runs only on that chip, one with `f` on its
family; both have instructions that the plain target lacks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from ..errors import ArgumentError

KIB = 1024


@dataclass(frozen=True)
class Arch:
    """One compilation target.

    Attributes:
        name: as in `.target`: "sm_90a".
        number: compute capability times ten: 90.
        suffix: "", "a" (this chip only) or "f" (this family).
        shared_per_cta: maximum shared memory per CTA in bytes (static and dynamic, opt-in).
        shared_per_sm: shared memory of an SM in bytes.
        shared_static: maximum static shared memory in bytes (`.shared` variables of known size).
        shared_reserved: bytes that the system reserves per resident CTA.
        registers_per_sm, registers_per_cta, registers_per_thread: 32-bit registers.
        warps_per_sm, ctas_per_sm: maximum resident at a time.
        threads_per_cta: maximum threads per CTA.
        cluster_portable: maximum portable cluster size; 0 if there are no clusters.
        cluster_limit: maximum cluster size with the non-portable attribute set.
        ptx: first PTX version with this target.
        features: names of instruction groups, see `FEATURES`.
    """

    name: str
    number: int
    suffix: str
    shared_per_cta: int
    shared_per_sm: int
    shared_static: int
    shared_reserved: int
    registers_per_sm: int
    registers_per_cta: int
    registers_per_thread: int
    warps_per_sm: int
    ctas_per_sm: int
    threads_per_cta: int
    cluster_portable: int
    cluster_limit: int
    ptx: tuple[int, int]
    features: frozenset[str]

    def supports(self, needed: str) -> bool:
        """True if an instruction that needs a target runs here.

        `needed` is "sm_80" (this target or any later one), "sm_90a" (exactly this target), "sm_100f" (this family, with
        either suffix), or several of them separated by blanks (any of them).
        """
        return any(self._supports_one(word) for word in needed.split())

    def _supports_one(self, needed: str) -> bool:
        number, suffix = _split(needed)
        if suffix == "a":
            return (self.number, self.suffix) == (number, "a")
        if suffix == "f":
            family = _FAMILIES.get(number, (number,))
            return self.suffix in ("a", "f") and self.number in family and self.number >= number
        return max(self.number, OLDEST_IN_THE_TABLE) >= number

    def __str__(self) -> str:
        return self.name


OLDEST_IN_THE_TABLE = 50
"""The instruction table names no target before sm_50; PTX for older targets is read by its rules."""
FEATURES: dict[str, str] = {
    "ldmatrix": "sm_75",
    "cp.async": "sm_80",
    "mbarrier": "sm_80",
    "bf16": "sm_80",
    "fp8": "sm_89",
    "cluster": "sm_90",
    "tma": "sm_90",
    "stmatrix": "sm_90",
    "griddepcontrol": "sm_90",
    "warpgroup_mma": "sm_90a",
    "setmaxnreg": "sm_90a sm_100f sm_101f sm_110f sm_120f",
    "tcgen05": "sm_100f sm_101f sm_110f",
}
"""The targets that each feature needs, in the format of `Arch.supports`."""

_FAMILIES = {100: (100, 103), 101: (101,), 110: (110,), 120: (120, 121)}

# number: (shared KiB per SM, per CTA, warps per SM, CTAs per SM, PTX version)
_GENERATIONS: dict[int, tuple[int, int, int, int, tuple[int, int]]] = {
    30: (48, 48, 64, 16, (3, 0)),
    32: (48, 48, 64, 16, (4, 0)),
    35: (48, 48, 64, 16, (3, 1)),
    37: (112, 48, 64, 16, (4, 1)),
    50: (64, 48, 64, 32, (4, 0)),
    52: (96, 48, 64, 32, (4, 1)),
    53: (64, 48, 64, 32, (4, 2)),
    60: (64, 48, 64, 32, (5, 0)),
    61: (96, 48, 64, 32, (5, 0)),
    62: (64, 48, 64, 32, (5, 0)),
    70: (96, 96, 64, 32, (6, 0)),
    72: (96, 96, 64, 32, (6, 1)),
    75: (64, 64, 32, 16, (6, 3)),
    80: (164, 163, 64, 32, (7, 0)),
    86: (100, 99, 48, 16, (7, 1)),
    87: (164, 163, 48, 16, (7, 4)),
    88: (164, 163, 48, 16, (9, 0)),
    89: (100, 99, 48, 24, (7, 8)),
    90: (228, 227, 64, 32, (7, 8)),
    100: (228, 227, 64, 32, (8, 6)),
    101: (228, 227, 48, 24, (8, 6)),
    103: (228, 227, 64, 32, (8, 8)),
    110: (228, 227, 48, 24, (9, 0)),
    120: (100, 99, 48, 24, (8, 7)),
    121: (100, 99, 48, 24, (8, 8)),
}
_SUFFIX_PTX: dict[str, tuple[int, int]] = {
    "sm_90a": (8, 0), "sm_100f": (8, 8), "sm_101f": (8, 8), "sm_103f": (8, 8), "sm_120f": (8, 8), "sm_121f": (8, 8),
}  # fmt: skip

_MINORS = {1: 5, 2: 3, 3: 2, 4: 3, 5: 0, 6: 5, 7: 8, 8: 8, 9: 2}
PTX_VERSIONS = frozenset((major, minor) for major, last in _MINORS.items() for minor in range(last + 1))
"""All PTX versions (PTX ISA, "Release Notes": 1.0 to 1.5, 2.0 to 2.3, …). A ptxas accepts those up to its own."""
KNOWN_VERSIONS = ", ".join(f"{major}.0" + (f" to {major}.{last}" if last else "") for major, last in _MINORS.items())
"""All PTX versions, as text for messages."""

_NAME = re.compile(r"sm_(\d+)([af]?)")


def _split(name: str) -> tuple[int, str]:
    found = _NAME.fullmatch(name)
    if found is None or int(found[1]) not in _GENERATIONS or (found[2] and int(found[1]) < 90):
        raise ArgumentError(f"{name!r} is not a known target", expected=f"one of {', '.join(known())}", got=name)
    if found[2] == "f" and int(found[1]) == 90:
        raise ArgumentError("sm_90 has no family target", expected="sm_90 or sm_90a", got=name)
    return int(found[1]), found[2]


def known() -> tuple[str, ...]:
    """The names that `get` accepts, oldest first."""
    names = []
    for number in _GENERATIONS:
        suffixes = ("", "a", "f") if number >= 100 else ("", "a") if number == 90 else ("",)
        names += [f"sm_{number}{suffix}" for suffix in suffixes]
    return tuple(names)


@cache
def get(name: str) -> Arch:
    """The target of that name ("sm_90a"). Raises ArgumentError, with the list of known targets, for any other name."""
    if not isinstance(name, str):
        raise ArgumentError("a target is named by a string", expected='"sm_90a"', got=repr(name))
    number, suffix = _split(name)
    per_sm, per_cta, warps, ctas, ptx = _GENERATIONS[number]
    arch = Arch(
        name=name,
        number=number,
        suffix=suffix,
        shared_per_cta=per_cta * KIB,
        shared_per_sm=per_sm * KIB,
        shared_static=48 * KIB,
        shared_reserved=KIB if number >= 80 else 0,
        registers_per_sm=32 * KIB if number == 53 else 64 * KIB,
        registers_per_cta=32 * KIB if number in (53, 62) else 64 * KIB,
        registers_per_thread=255,
        warps_per_sm=warps,
        ctas_per_sm=ctas,
        threads_per_cta=1024,
        cluster_portable=8 if number >= 90 else 0,
        cluster_limit=16 if number in (90, 100, 103) else 8 if number >= 90 else 0,
        ptx=_SUFFIX_PTX.get(name, ptx),
        features=frozenset(),
    )
    features = frozenset(feature for feature, needed in FEATURES.items() if arch.supports(needed))
    return Arch(**{**arch.__dict__, "features": features})
