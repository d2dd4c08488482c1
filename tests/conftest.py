"""Shared by all tests: repeatable random numbers, the cache for builds, and reports of what is skipped.

Every run draws the same random numbers, so it gives the same verdict. `--explore SEED` (`make test-slow`) lets
hypothesis draw others; the last lines of the run name the seed, and the same seed draws the same examples.

`--without torch,jax` (`make test`) tests as if they were not installed, so the run is the same, and as short,
everywhere.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import random
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests import thinning

pytest_plugins = ["tests.driver.mock_gpu"]
OPTIONAL = ("torch", "jax", "triton")
NO_GPU = "no GPU here"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--explore", metavar="SEED", help="draw other examples in property tests: those of this seed")
    parser.addoption("--without", metavar="PACKAGES", default="", help="test as if these were not installed: torch,jax")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose what hypothesis draws, what counts as not installed, and a folder for builds that is not the user's."""
    # With Python's own thresholds, garbage takes a fifth of the time. torch would look for it after each compilation.
    gc.set_threshold(1_000_000, 20, 100)
    os.environ.setdefault("TORCH_DYNAMO_RUN_GC_AFTER_COMPILE", "0")
    # pytest rewrites the assertions of each package that brings a plugin, so the whole of ours. Each process would
    # compile it again, and tests would run another text than users do.
    config.pluginmanager.rewrite_hook._must_rewrite.discard("warploom")
    config.pluginmanager.rewrite_hook._marked_for_rewrite_cache.clear()
    for name in _left_out(config):
        sys.modules[name] = None  # importing it raises ModuleNotFoundError
    if importlib.util.find_spec("hypothesis"):  # a machine with a GPU may do without it
        _choose_examples(config)
    os.environ.setdefault("WARPLOOM_CACHE_DIR", str(Path(str(config.rootpath), ".pytest_cache", "warploom")))


def _left_out(config: pytest.Config) -> list[str]:
    return [name for name in config.getoption("without").split(",") if name]


def _choose_examples(config: pytest.Config) -> None:
    from hypothesis import settings
    from hypothesis.internal.conjecture import providers

    # Else it also draws constants of the modules imported so far: other examples in each process, and seconds to parse
    # the sources.
    providers._get_local_constants = lambda: providers._local_constants
    seed = config.getoption("explore")
    if seed is not None:
        config.option.hypothesis_seed = seed
    common = {"database": None, "deadline": None}
    settings.register_profile("warploom", derandomize=seed is None, print_blob=seed is not None, **common)
    settings.load_profile("warploom")


@pytest.fixture(autouse=True)
def _the_same_numbers_every_time() -> None:
    """A test that draws from a global generator gets the same numbers, whichever tests ran before it."""
    random.seed(0)
    np.random.seed(0)
    if torch := sys.modules.get("torch"):
        torch.default_generator.manual_seed(0)  # `torch.manual_seed` keeps a trace of its caller for each absent GPU
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thin the sweeps, and skip tests marked `gpu` where no GPU can be used."""
    thinning.thin(items)
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not _gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=NO_GPU))


def pytest_collection_finish() -> None:
    """Collect no garbage among modules and tests: it took a fifth of the total time."""
    gc.freeze()


def pytest_sessionfinish() -> None:
    """pytest collects garbage five times when it ends: through all that the tests have imported and cached, seconds."""
    gc.freeze()


def _gpu() -> bool:
    from warploom.driver import library

    return library.available()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the seed of an exploring run, missing packages and hardware, and how many tests were skipped for them."""
    if (seed := config.getoption("explore")) is not None:
        terminalreporter.line(f"property tests drew the examples of --explore {seed}")
    skipped: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        skipped[_cause(reason)] += 1
    without = _left_out(config)
    missing = [name for name in OPTIONAL if name in without or importlib.util.find_spec(name) is None]
    why = {name: "left out by --without" if name in without else "not installed" for name in missing}
    causes = {f"{name} is {why[name]}": count for name in missing if (count := skipped.pop(name, 0))}
    if skipped[NO_GPU]:
        causes[NO_GPU] = skipped[NO_GPU]
    del skipped[NO_GPU]
    causes.update((reason, count) for reason, count in skipped.items() if count)
    if causes:
        terminalreporter.section("not tested here")
        for cause, count in sorted(causes.items()):
            terminalreporter.line(f"{cause}: {count} skipped")
        if missing:
            terminalreporter.line("`make test-all` installs torch and jax, and tests with them; triton needs a GPU")


def _cause(reason: str) -> str:
    reason = reason.removeprefix("Skipped: ")
    for name in OPTIONAL:
        if f"'{name}" in reason or reason.startswith((f"no {name}", f"{name} ")):
            return name
    return NO_GPU if "no gpu" in reason.lower() else reason
