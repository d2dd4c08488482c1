"""What all tests share: where builds are cached, what is skipped where, and a closing line that says so."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path

import pytest

OPTIONAL = ("torch", "jax", "triton")
NO_GPU = "no GPU here"


def pytest_configure(config: pytest.Config) -> None:
    """Tests build into a cache of their own, not into the user's."""
    os.environ.setdefault("WARPLOOM_CACHE_DIR", str(Path(str(config.rootpath), ".pytest_cache", "warploom")))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped where no GPU can be used."""
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=NO_GPU))


def _gpu() -> bool:
    from warploom.driver import library

    return library.available()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name what is not installed or not here, and how many tests that left out."""
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped[_cause(reason)] += 1
    missing = [name for name in OPTIONAL if importlib.util.find_spec(name) is None]
    causes = {f"{name} is not installed": count for name in missing if (count := skipped.pop(name, 0))}
    if skipped[NO_GPU]:
        causes[NO_GPU] = skipped[NO_GPU]
    del skipped[NO_GPU]
    causes.update((reason, count) for reason, count in skipped.items() if count)
    if causes:
        terminalreporter.section("not tested here")
        for cause, count in sorted(causes.items()):
            terminalreporter.line(f"{cause}: {count} skipped")
        if missing:
            terminalreporter.line("`make test-all` installs torch and jax; triton needs a GPU")


def _cause(reason: str) -> str:
    reason = reason.removeprefix("Skipped: ")
    for name in OPTIONAL:
        if f"'{name}" in reason or reason.startswith((f"no {name}", f"{name} ")):
            return name
    return NO_GPU if "no gpu" in reason.lower() else reason
