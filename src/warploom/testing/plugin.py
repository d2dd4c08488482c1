"""The pytest plugin: a fixture, an option that makes every check explore, and PTX texts as tests.

    def test_gemm(assert_clean):
        assert_clean(gemm, a, b)

    pytest --warploom-explore              # every assert_clean tries several schedules
    pytest --warploom-check kernels/       # each launch description below kernels/ is a test of the text next to it

Nothing of the package is imported before it is needed: the plugin is loaded in every pytest run of its environment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

SUFFIX = ".launch.toml"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("warploom", "kernels checked in the emulator")
    group.addoption("--warploom-explore", action="store_true", help="try several schedules in every assert_clean")
    group.addoption("--warploom-check", action="store_true", help="collect launch descriptions of PTX texts as tests")


@pytest.fixture
def assert_clean(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`warploom.testing.assert_clean`, which explores where --warploom-explore is given."""
    from . import assert_clean as plain

    explore = bool(request.config.getoption("--warploom-explore"))

    def check(kernel: Any, *arguments: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if explore and "schedule" not in options:
            options.setdefault("explore", True)
        return plain(kernel, *arguments, **options)

    return check


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if parent.config.getoption("--warploom-check") and file_path.name.endswith(SUFFIX):
        return LaunchDescription.from_parent(parent, path=file_path)
    return None


class LaunchDescription(pytest.File):
    """A launch description, and the one test it is."""

    def collect(self) -> Iterator[pytest.Item]:
        yield CheckedText.from_parent(self, name=self.path.name.removesuffix(SUFFIX))


class CheckedText(pytest.Item):
    """The text of a launch description runs without an error-level finding."""

    def runtest(self) -> None:
        from ..runtime import launch_file
        from . import check_text

        text = launch_file.text_of(self.path)
        schedule = "explore" if self.config.getoption("--warploom-explore") else "lazy"
        checked = check_text(text, launch=self.path, schedule=schedule)
        if not checked.ok:
            raise NotClean(checked.text(least=("error",)))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        from ..errors import WarploomError

        if isinstance(excinfo.value, (NotClean, WarploomError)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"warploom check {self.name}"


class NotClean(AssertionError):
    """A text with findings; its message is the report."""
