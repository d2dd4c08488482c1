"""Headless Chromium for tests of pages; tests that use it are skipped if it is missing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def chromium(profile: Path, width: int = 1400, height: int = 900) -> Iterator[Any]:
    """A selenium driver. profile: an empty folder for it."""
    selenium = pytest.importorskip("selenium.webdriver")
    browser, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if browser is None or driver is None:
        pytest.skip("no chromium and chromedriver here")
    options = selenium.ChromeOptions()
    options.binary_location = browser
    for argument in ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument(f"--window-size={width},{height}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = selenium.Chrome(options=options, service=selenium.ChromeService(driver))
    try:
        yield opened
    finally:
        opened.quit()


def complaints(driver: Any) -> list[str]:
    """Errors in the page's console."""
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
