"""Every Python process that finds this file has the mock GPU that executes (tests/driver/executing.py)."""

import os

if os.environ.get("FAKE_CUDA_EXECUTES"):
    from tests.driver import executing

    executing.install_in_torch()
