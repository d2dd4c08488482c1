"""Measure how long a traced launch takes from command to page, and the frame rate with a million events.

    python -m benchmarks.trace_page [--events 1000000] [--out benchmarks/results/emulator/trace-page.json]

The page is opened in headless Chromium (selenium, Debian's chromium and chromedriver). `opened_ms` is from the start of
navigation until the page is usable; `frames_per_s` counts frames while the view moves by a hundredth of its width per
frame, at several parts of the run; `paint_ms` is the time to paint one of these frames. Each is the best of three
tries, because other load on the machine only adds to them; `load` is the machine's load during the measurement.
`processor_ms` is the processor time of the page's process, for opening it and for a frame, which other load does not
change.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from warploom.kernels.ladder import find
from warploom.lab import evidence
from warploom.timing import Timeline, Traced
from warploom.types import bf16

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "benchmarks/results/emulator/trace-page.json"
SIZE = 2048
COMMAND = ("trace", "warploom.kernels.ladder.r20_ping_pong", "--size", "512", "--html")
PARTS = (1.0, 0.1, 0.01, 0.001)
TRIES = 3
FRAMES = """
const [part, seconds, done] = arguments, { view, painter } = window.warploom;
view.fit();
const wide = (view.to - view.from) * part;
view.from = view.end / 3;
view.to = view.from + wide;
const began = performance.now(), paints = [];
let frames = 0;
function frame() {
  view.pan(wide * 0.01);
  const before = performance.now();
  painter.paint(view);
  paints.push(performance.now() - before);
  frames++;
  if (performance.now() - began < 1000 * seconds) requestAnimationFrame(frame);
  else done([frames / ((performance.now() - began) / 1000), paints]);
}
requestAnimationFrame(frame);
"""


def repeated(traced: Traced, count: int) -> Traced:
    """The launch with its run repeated until it has `count` events."""
    timeline, found = traced.timeline, []
    for turn in range(-(-count // len(timeline.events))):
        later, further = turn * timeline.end, turn * len(timeline.events)
        for event in timeline.events:
            found.append(
                dataclasses.replace(
                    event, number=event.number + further, start=event.start + later, end=event.end + later,
                    cause=event.cause + further if event.cause >= 0 else -1,
                    issuer=event.issuer + further if event.issuer >= 0 else -1,
                    busy=tuple(one + later if one >= 0 else one for one in event.busy),
                    read=event.read + later if event.read >= 0 else -1.0,
                    group=event.group + further if event.group >= 0 else -1,
                )
            )  # fmt: skip
    longer: Timeline = dataclasses.replace(timeline, events=found[:count])
    for event in longer.events:
        event.cause = event.cause if event.cause < count else -1
    return dataclasses.replace(traced, timeline=longer)


def traced(size: int = SIZE) -> Traced:
    """Rung 20, ping-pong, as a launch of `size` cubed."""
    a = np.zeros((size, size), bf16.numpy)
    return find("ping_pong").build().trace(a, a)


def page_of(events: int, folder: Path) -> tuple[Path, Traced]:
    """A page with that many events."""
    launch = repeated(traced(), events)
    path = folder / "page.html"
    launch.to_html(path)
    return path, launch


def measured(browser: Any, path: Path, seconds: float = 2.0) -> Iterator[dict[str, Any]]:
    """Rows: the page's opening, and frames at each part of the run."""
    from selenium.webdriver.support.ui import WebDriverWait

    opened, spent = [], []
    browser.execute_cdp_cmd("Performance.enable", {})
    for _ in range(TRIES):
        browser.get("about:blank")
        before = processor_ms(browser)
        browser.get(path.as_uri())
        WebDriverWait(browser, 60).until(lambda driver: driver.execute_script("return !!window.warploom"))
        opened.append(browser.execute_script("return window.warploom.opened"))
        after = processor_ms(browser)
        spent.append(after - before if after > before else after)  # the page may have got a process of its own
    yield {
        "what": "open", "opened_ms": round(min(opened), 1), "processor_ms": round(min(spent), 1),
        "tries_ms": [round(one, 1) for one in opened],
    }  # fmt: skip
    for part in PARTS:
        before = processor_ms(browser)
        tries = [browser.execute_async_script(FRAMES, part, seconds) for _ in range(TRIES)]
        each = (processor_ms(browser) - before) / sum(len(paints) for _, paints in tries)
        best = max(tries)
        yield {
            "what": "pan", "part": part, "frames_per_s": round(best[0], 1),
            "paint_ms": round(statistics.median(best[1]), 2), "processor_ms": round(each, 2),
            "tries_frames_per_s": [round(one[0], 1) for one in tries],
        }  # fmt: skip


def processor_ms(browser: Any) -> float:
    """Processor time of the page's process so far."""
    metrics = browser.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * next(float(one["value"]) for one in metrics if one["name"] == "ProcessTime")


def command_seconds() -> float:
    """From the command to the page of a 512 cubed warp-specialised GEMM, the shortest of three."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(TRIES):
            began = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "warploom", *COMMAND, str(Path(folder, "page.html"))], check=True,
                stdout=subprocess.DEVNULL, env={**os.environ, "WARPLOOM_CACHE_DIR": str(Path(folder, "cache"))},
            )  # fmt: skip
            found.append(time.perf_counter() - began)
            for entry in sorted(Path(folder).rglob("*"), reverse=True):
                entry.unlink() if entry.is_file() else entry.rmdir()
    return min(found)


def main() -> None:
    from tests.browser import chromium

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    head = evidence.header("trace-page", gpu="emulator")
    rows: list[dict[str, Any]] = [
        {"what": "command", "command": "warploom " + " ".join(COMMAND), "seconds": round(command_seconds(), 2),
         "cores": os.cpu_count(), "load": [round(one, 1) for one in os.getloadavg()]},
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path, launch = page_of(given.events, Path(folder))
        profile = Path(folder, "profile")
        profile.mkdir()
        with chromium(profile, 1600, 1000) as browser:
            version = browser.capabilities["browserVersion"]
            for row in measured(browser, path):
                rows.append(
                    {**row, "events": len(launch.timeline.events), "page_bytes": path.stat().st_size,
                     "chromium": version, "cores": os.cpu_count(), "load": [round(one, 1) for one in os.getloadavg()]}
                )  # fmt: skip
                print(rows[-1])
    given.out.write_text(json.dumps({**head, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
