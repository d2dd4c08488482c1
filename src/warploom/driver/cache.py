"""Built cubins on disk, addressed by content, and in memory, by the same key.

A file's name is the hash of everything the build depends on; its first line is the hash of the rest, so a truncated or
modified file is detected, deleted and rebuilt. It is written under another name and renamed, so that no reader sees a
partial file. If several processes want the same build, one builds and the others wait (`locked`). When the folder
exceeds `config.cache_mb`, the least recently used files are deleted. The folder belongs to the user alone (0700),
because a cubin is code. Any problem with the disk is a CacheWarning; the build continues without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tempfile
import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import CacheWarning
from ..settings import config
from .folder_lock import locked
from .once import once

_MAGIC = b"warploom-cubin-1 "
_MEMORY_ENTRIES = 1024
_KEPT_SHARE = 0.9
"""Fill level of the folder after a clean-up, so that not every build has to scan it."""
_ABANDONED_S = 3600
"""A temporary file of this age belongs to a process that was killed while writing."""


@dataclass(frozen=True)
class Entry:
    """The stored part of a build: the cubin, the compiler's log, the compiler's name."""

    cubin: bytes
    log: str
    compiler: str


def key_of(*parts: str) -> str:
    """The content address of a build: a hash over all parts, including their boundaries."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


class DiskCache:
    """Builds in one folder. No method raises for disk errors; each folder warns once for each kind of problem."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cubin"
        self._warned: set[str] = set()
        self._bytes: int | None = None

    def read(self, key: str) -> Entry | None:
        """The entry of that key, or None: missing, not ours, or damaged (then it is deleted)."""
        path = self._path(key)
        try:
            if not self._trusted():
                return None
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn("read", f"the cache in {self.folder} cannot be read: {error.strerror or error}")
            return None
        entry = unpack(data, key)
        if entry is None:
            warnings.warn(f"the cached build {path} is damaged; it is rebuilt", CacheWarning, stacklevel=2)
            with suppress(OSError):
                path.unlink()
        else:
            with suppress(OSError):  # the time of its last use; unchanged on a read-only disk
                os.utime(path)
        return entry

    def has(self, key: str) -> bool:
        """True if there is an entry of that key; it is not read."""
        try:
            return self._trusted() and self._path(key).is_file()
        except OSError:
            return False

    @contextmanager
    def turn(self, key: str) -> Iterator[None]:
        """Inside the `with` no other process builds what has this key (or one of the few that share its folder)."""
        try:
            ready = self._prepared(key)
        except OSError:  # `write` reports the problem
            ready = False
        if not ready:
            yield
            return
        with locked(self._path(key).parent):
            yield

    def write(self, key: str, entry: Entry) -> None:
        """Store an entry. Atomic; another process that writes the same key does no harm."""
        try:
            if not self._prepared(key):
                return
            path = self._path(key)
            handle, temporary = tempfile.mkstemp(prefix=f".{key[:8]}-", dir=path.parent)
            try:
                _write_all(handle, pack(entry, key))
                os.close(handle)
                handle = -1
                os.replace(temporary, path)
            except BaseException:
                if handle >= 0:
                    os.close(handle)
                with suppress(OSError):
                    os.unlink(temporary)
                raise
            self._shrink(path)
        except OSError as error:
            self._warn("write", f"the cache in {self.folder} cannot be written: {error.strerror or error}")

    def _shrink(self, newest: Path) -> None:
        """Delete the least recently used entries if the folder exceeds its limit; never the newest."""
        limit = int(config.cache_mb * 1e6)
        if self._bytes is not None:  # what others wrote since is counted in the next scan
            self._bytes += newest.stat().st_size
            if self._bytes <= limit:
                return
        found: list[tuple[float, int, Path]] = []
        for path in self.folder.glob("*/*"):
            with suppress(OSError):  # another process deleted it
                status = path.stat()
                if path.name.startswith(".") and status.st_mtime < time.time() - _ABANDONED_S:
                    path.unlink()
                elif not path.name.startswith("."):
                    found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found)
        if total > limit:
            for _, size, path in sorted(found):
                if total <= limit * _KEPT_SHARE:
                    break
                if path != newest:
                    with suppress(OSError):
                        path.unlink()
                    total -= size
        self._bytes = total

    def _prepared(self, key: str) -> bool:
        """Create the folders of a key. True if they can be trusted."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        if not self._trusted():
            return False
        self._path(key).parent.mkdir(mode=0o700, exist_ok=True)
        return True

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _trusted(self) -> bool:
        """True if the folder is a real folder, owned by the user, and closed to everybody else."""
        status = os.lstat(self.folder)
        mine = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        closed = os.name != "posix" or not stat.S_IMODE(status.st_mode) & 0o077
        if stat.S_ISDIR(status.st_mode) and mine and closed:
            return True
        trouble = (
            "is not a folder"
            if not stat.S_ISDIR(status.st_mode)
            else "is accessible to other users"
            if mine
            else "belongs to another user"
        )
        self._warn(
            "trust",
            f"the cache folder {self.folder} {trouble}; it is not used (expected: a folder of your own with mode 0700)",
        )
        return False

    def _warn(self, kind: str, text: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(text, CacheWarning, stacklevel=3)


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def pack(entry: Entry, key: str) -> bytes:
    """The bytes of a file: magic, hash of the rest, then a JSON line, then the cubin."""
    about = json.dumps({"key": key, "log": entry.log, "compiler": entry.compiler, "size": len(entry.cubin)})
    body = about.encode() + b"\n" + entry.cubin
    return _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def unpack(data: bytes, key: str) -> Entry | None:
    """The entry in a file's bytes; None if they are not exactly what `pack` made for that key."""
    head, _, body = data.partition(b"\n")
    if not head.startswith(_MAGIC) or head[len(_MAGIC) :] != hashlib.sha256(body).hexdigest().encode():
        return None
    about, _, cubin = body.partition(b"\n")
    try:
        known = json.loads(about)
    except ValueError:
        return None
    if known["key"] != key or known["size"] != len(cubin):
        return None
    return Entry(cubin, known["log"], known["compiler"])


class BuildCache:
    """Memory in front of a disk. Threads and processes that want the same key wait for the first one's build."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._disks: dict[Path, DiskCache] = {}
        self._building: dict[str, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: str, folder: Path | None, build: Callable[[], Entry]) -> tuple[Entry, str]:
        """The entry of a key and its source: "memory", "disk" or "" (built now). folder None: no disk."""
        found = self._remembered(key)
        if found is not None:
            return found, "memory"
        with self._lock:
            turn = self._building.setdefault(key, threading.Lock())
        try:
            with turn:
                found = self._remembered(key)
                if found is not None:
                    return found, "memory"
                entry, source = self._from_disk(key, self._disk(folder), build) if folder else (build(), "")
                self._remember(key, entry)
                return entry, source
        finally:
            with self._lock:
                self._building.pop(key, None)

    @staticmethod
    def _from_disk(key: str, disk: DiskCache, build: Callable[[], Entry]) -> tuple[Entry, str]:
        """The entry on disk, or else a new build that is stored there: by one process if several want it."""
        if (entry := disk.read(key)) is not None:
            return entry, "disk"
        with disk.turn(key):
            if (entry := disk.read(key)) is not None:
                return entry, "disk"
            entry = build()
            disk.write(key, entry)
            return entry, ""

    def stored(self, key: str, folder: Path) -> bool:
        """True if the disk has the entry of a key, or gets it now from memory: not if it is full, read-only or not
        trusted."""
        disk, entry = self._disk(folder), self._remembered(key)
        if not disk.has(key) and entry is not None:
            disk.write(key, entry)
        return disk.has(key)

    def clear(self) -> None:
        """Clear the memory; the disk is unchanged."""
        with self._lock:
            self._entries.clear()
            self._disks.clear()

    def _disk(self, folder: Path) -> DiskCache:
        with self._lock:
            return self._disks.setdefault(folder, DiskCache(folder))

    def _remembered(self, key: str) -> Entry | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
            return entry

    def _remember(self, key: str, entry: Entry) -> None:
        with self._lock:
            self._entries[key] = entry
            while len(self._entries) > _MEMORY_ENTRIES:
                self._entries.popitem(last=False)


@once
def builds() -> BuildCache:
    """The process's cache."""
    return BuildCache()
