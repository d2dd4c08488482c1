"""For tests of kernels: `assert_clean(kernel, *arguments, explore=True)`, and its parts."""

from __future__ import annotations

from .assertions import assert_clean, exhaustive
from .checked import STATIC_ONLY, Checked, check_emulated, check_static
from .texts import check_entries, check_folder, check_text, texts_in

__all__ = [
    "STATIC_ONLY", "Checked", "assert_clean", "check_emulated", "check_entries", "check_folder", "check_static",
    "check_text", "exhaustive", "texts_in",
]  # fmt: skip
