"""Pages kept as data: tables of TOML files next to the code that reads them, one record for each id."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


class Pages(Mapping[str, T]):
    """Records by id, in the order of the files. The files are read when a record is first needed."""

    def __init__(self, files: tuple[Path, ...], make: Callable[[str, dict[str, Any]], T]) -> None:
        self._files, self._make = files, make

    @cached_property
    def _records(self) -> dict[str, T]:
        tables = (tomllib.loads(file.read_text(encoding="utf-8")) for file in self._files)
        return {id: self._make(id, facts) for table in tables for id, facts in table.items()}

    def __getitem__(self, id: str) -> T:
        return self._records[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)
