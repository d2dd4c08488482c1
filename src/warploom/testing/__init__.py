"""For tests of kernels: `assert_clean(kernel, *arguments, explore=True)`, and its parts.

Names are looked up when first used: the pytest plugin is loaded in every pytest run of its environment.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .assertions import assert_clean as assert_clean
    from .assertions import exhaustive as exhaustive
    from .checked import STATIC_ONLY as STATIC_ONLY
    from .checked import Checked as Checked
    from .checked import check_emulated as check_emulated
    from .checked import check_static as check_static
    from .texts import check_entries as check_entries
    from .texts import check_folder as check_folder
    from .texts import check_text as check_text
    from .texts import texts_in as texts_in

_NAMES = {
    "assertions": "assert_clean exhaustive",
    "checked": "STATIC_ONLY Checked check_emulated check_static",
    "texts": "check_entries check_folder check_text texts_in",
}
_HOME_OF = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f".{_HOME_OF[name]}", __name__), name)
    return found
