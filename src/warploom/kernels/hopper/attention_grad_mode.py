"""torch's gradient mode while a function of scores is traced: under torch.no_grad() nothing has a derivative.

torch may be missing; then nothing switches gradients off.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any


def enabled() -> bool:
    """False where the traced function has switched gradients off."""
    torch: Any = sys.modules.get("torch")
    return torch is None or bool(torch.is_grad_enabled())


def of_function() -> AbstractContextManager[Any]:
    """The mode in which a function begins, whatever that of its caller, which returns afterwards."""
    torch: Any = sys.modules.get("torch")
    return nullcontext() if torch is None else torch.enable_grad()
