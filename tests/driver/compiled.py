"""Importing this compiles the driver's launch, so that a server's forks need not: each has an empty cache."""

from warploom.driver.enqueue import compiled

compiled()
