"""Importing this compiles the driver's launch, so that a server's forks need not: each has an empty cache."""

import tempfile
from pathlib import Path

from warploom.driver.enqueue import compiled
from warploom.settings import config

with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=Path(folder)):
    compiled()
object.__setattr__(config, "_defaults", None)  # `override` read the environment, of which a fork has its own
