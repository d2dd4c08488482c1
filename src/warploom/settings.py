"""Settings: one typed object, scoped overrides, and environment variables as its defaults.

    from warploom import config
    config.cache_dir                              # WARPLOOM_CACHE_DIR, default ~/.cache/warploom
    with config.override(emulator={"schedule": "random", "seed": 3}):
        ...

Overrides are held in a context variable, so two threads can have different ones. A leaf module: of the package it
imports only `errors`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .errors import ArgumentError

EMULATED = ("A100", "H200", "B200")
KEEPABLE = ("ptx", "cubin", "sass")
FIRST_CALLS = "first-calls"
AUTOTUNE = (0, 1, 2, FIRST_CALLS)
FLAGS = {"on": True, "off": False, "1": True, "0": False, "true": True, "false": False, "yes": True, "no": False}
"""Words for an environment variable that acts as a switch."""
MOST_TIMEOUT_S = 1_000_000
"""Longest wait in seconds: a GPU gets it in milliseconds as a 32-bit number."""
GATHERS = ("push", "tma", "copy")


@dataclass(frozen=True)
class EmulatorSettings:
    """How the CPU machine runs kernels that are called without `emulate`'s own arguments."""

    check: bool = False
    schedule: str = "lazy"
    seed: int = 0
    limit_s: float = 60.0
    """Refuse a call whose estimated emulation takes longer than this many seconds."""
    progress_after_s: float = 2.0
    """Show a progress bar once an emulation has run this many seconds."""
    max_steps: int = 200_000_000
    """Stop an emulation after this many warp instructions."""
    gpu: str = "H200"
    """The GPU whose kernel emulates a product on CPU arrays: "A100", "H200" or "B200"."""
    strict: bool = False
    """Report behaviour that works on today's GPUs but that the ISA does not guarantee as errors (`warploom rules`)."""

    def __post_init__(self) -> None:
        for name, kind, least in (("seed", int, None), ("limit_s", (int, float), 0), ("max_steps", int, 1),
                                  ("progress_after_s", (int, float), 0)):  # fmt: skip
            value = getattr(self, name)
            if not isinstance(value, kind) or isinstance(value, bool) or (least is not None and not value >= least):
                bound = "" if least is None else f" of at least {least}"
                raise ArgumentError(f"config.emulator.{name} is not a number{bound}", got=repr(value))
        if self.gpu not in EMULATED:
            raise ArgumentError("config.emulator.gpu is not a GPU", expected=", ".join(EMULATED), got=repr(self.gpu))


@dataclass(frozen=True)
class Settings:
    """All settings of the package."""

    cache_dir: Path | None = None
    """Where built cubins and tuned choices are kept; None switches the cache off."""
    cache_mb: float = 512.0
    """Maximum megabytes (10^6 bytes) of built cubins to keep; the least recently used are deleted first."""
    dump_dir: Path | None = None
    """Where the texts named in `keep` are written."""
    keep: tuple[str, ...] = ()
    """Which of ptx, cubin, sass to write into `dump_dir` at each build."""
    line_info: bool = True
    """Print `.loc` lines, so that profilers and the emulator name Python lines."""
    ptxas: Path | None = None
    """A ptxas to use instead of the one that is found."""
    check_unproven: bool = True
    """Compare the first result of a kernel that was never run on such hardware with a slow reference."""
    peer_timeout_s: float = 60.0
    """How long a GPU, or a process, waits for the others of its group, in seconds."""
    peer_gather: str | None = None
    """How rows reach the other GPUs in a product with an all-gather, the same on all ranks; None: chosen by the
    sizes. See `warploom.torch.distributed.all_gather_matmul`."""
    """How a product with a reduce-scatter sends its tiles: see `warploom.torch.distributed.matmul_reduce_scatter`."""
    peer_compare: bool = False
    """Compare every product of a group of GPUs, not only new ones, with the calls of the other ranks. This costs a
    round trip through the group's store for each product, and no two ranks launch different sizes."""
    autotune: int | str = 0
    """0: the model's choice; 1: time the best candidates first; 2: time all; "first-calls": the first calls of a
    product run the model's two best candidates in turn, and the faster one is kept."""
    emulator: EmulatorSettings = field(default_factory=EmulatorSettings)

    def __post_init__(self) -> None:
        for name in ("cache_dir", "dump_dir", "ptxas"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Path):
                raise ArgumentError(f"config.{name} is not a path", expected="a str, a Path or None", got=repr(value))
        if self.autotune not in AUTOTUNE:
            raise ArgumentError("unknown value of config.autotune", expected=AUTOTUNE, got=repr(self.autotune))
        size = self.cache_mb
        if not isinstance(size, (int, float)) or isinstance(size, bool) or not 0 < size < float("inf"):
            raise ArgumentError("config.cache_mb is not a number of megabytes above 0", got=repr(size),
                                hint="cache_dir=None (WARPLOOM_CACHE_DIR=off) turns the cache off")  # fmt: skip
        wait = self.peer_timeout_s
        if not isinstance(wait, (int, float)) or isinstance(wait, bool) or not 0 < wait <= MOST_TIMEOUT_S:
            raise ArgumentError("config.peer_timeout_s is not a number of seconds", got=repr(wait),
                                expected=f"above 0, at most {MOST_TIMEOUT_S}")  # fmt: skip
        if self.peer_gather not in (None, *GATHERS):
            raise ArgumentError("config.peer_gather is unknown", expected=GATHERS, got=repr(self.peer_gather))
        if not isinstance(self.keep, (tuple, list)) or not set(self.keep) <= set(KEEPABLE):
            raise ArgumentError("config.keep names an unknown stage", expected=KEEPABLE, got=repr(self.keep))
        if not isinstance(self.emulator, EmulatorSettings):
            raise ArgumentError("config.emulator is not a dict of settings", expected="a dict", got=repr(self.emulator))


def _autotune(text: str) -> int | str:
    known = {str(each): each for each in AUTOTUNE}
    if text not in known:
        raise ArgumentError("unknown value of WARPLOOM_AUTOTUNE", expected=", ".join(known), got=repr(text))
    return known[text]


def from_environment(environment: dict[str, str] | None = None) -> Settings:
    """The settings given by `WARPLOOM_*` variables."""
    env = dict(os.environ) if environment is None else environment

    def read(name: str, default: str) -> str:
        return env.get(f"WARPLOOM_{name}", default).strip()

    def number(name: str, default: float, kind: type) -> Any:
        text = read(name, "")
        if not text:
            return default
        try:
            return kind(text)
        except ValueError:
            raise ArgumentError(f"the environment variable WARPLOOM_{name} is not a number", got=text) from None

    def flag(name: str, default: bool) -> bool:
        text = read(name, "").lower()
        if text and text not in FLAGS:
            raise ArgumentError(f"WARPLOOM_{name} is neither on nor off", expected=", ".join(FLAGS), got=repr(text))
        return FLAGS.get(text, default)

    base = Path(env.get("XDG_CACHE_HOME") or Path(env.get("HOME", "~")).expanduser() / ".cache")
    cache = read("CACHE_DIR", "")
    keep = tuple(part for part in read("KEEP", "").split(",") if part)
    if unknown := [part for part in keep if part not in KEEPABLE]:
        raise ArgumentError(f"WARPLOOM_KEEP names {unknown[0]!r}", expected=f"a comma-separated choice of {KEEPABLE}")
    return Settings(
        cache_dir=None if cache.lower() in ("0", "off") else Path(cache or base / "warploom").expanduser(),
        cache_mb=number("CACHE_MB", 512.0, float),
        dump_dir=Path(read("DUMP_DIR", "")).expanduser() if read("DUMP_DIR", "") else None,
        keep=keep,
        line_info=flag("LINEINFO", True),
        ptxas=Path(read("PTXAS", "")).expanduser() if read("PTXAS", "") else None,
        check_unproven=flag("CHECK_UNPROVEN", True),
        peer_timeout_s=number("PEER_TIMEOUT_S", 60.0, float),
        peer_gather=read("PEER_GATHER", "") or None,
        peer_compare=flag("PEER_COMPARE", False),
        autotune=_autotune(read("AUTOTUNE", "") or "0"),
        emulator=EmulatorSettings(
            check=flag("CHECK", False),
            gpu=read("EMULATED_GPU", "H200"),
            strict=flag("STRICT", False),
            schedule=read("SCHEDULE", "lazy"),
            seed=number("SEED", 0, int),
            limit_s=number("EMULATOR_LIMIT_S", 60.0, float),
        ),
    )


class Config:
    """The current settings, read as attributes; `override` changes them inside a `with`."""

    def __init__(self) -> None:
        object.__setattr__(self, "_current", ContextVar[Settings | None]("warploom_settings", default=None))
        object.__setattr__(self, "_defaults", None)

    @property
    def settings(self) -> Settings:
        """The settings object that is in effect here."""
        current = self._current.get()
        if current is not None:
            return current
        if self._defaults is None:
            object.__setattr__(self, "_defaults", from_environment())
        return self._defaults

    def __getattr__(self, name: str) -> Any:
        return getattr(self.settings, name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"config.{name} is read-only; use `with config.override({name}=...)`")

    @contextmanager
    def override(self, **changes: Any) -> Iterator[Settings]:
        """Apply settings inside the `with`, in this thread and in what it awaits.

        `emulator` takes a dict of emulator settings. Raises ArgumentError for an unknown name.
        """
        current = self.settings
        known = {item.name for item in fields(Settings)}
        if unknown := sorted(set(changes) - known):
            raise ArgumentError(
                f"unknown setting {unknown[0]!r}", expected=", ".join(sorted(known)), code="unknown-name"
            )
        if isinstance(changes.get("emulator"), dict):
            known = {item.name for item in fields(EmulatorSettings)}
            if unknown := sorted(set(changes["emulator"]) - known):
                raise ArgumentError(
                    f"unknown setting emulator.{unknown[0]}", expected=", ".join(sorted(known)), code="unknown-name"
                )
            changes["emulator"] = replace(current.emulator, **changes["emulator"])
        for name in ("cache_dir", "dump_dir", "ptxas"):
            if isinstance(changes.get(name), str):
                changes[name] = Path(changes[name])
        token = self._current.set(replace(current, **changes))
        try:
            yield self.settings
        finally:
            self._current.reset(token)


config = Config()
