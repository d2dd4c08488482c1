"""The sanitizer: watches an emulation and says which rule of the PTX ISA it breaks, at which two lines.

It knows no values, only who touched what in which order (`clocks`), so it finds a race also where this schedule
happened to give the right result. The parts, each on top of the one before: `races` (memory), `edges`
(synchronisation), `operations` (copies), `multiply` (wgmma), `lifetime` (exits), `layout`, `performance`.
"""

from .explore import EXPLORED, explore
from .rules import RULES, Rule
from .sanitizer import Sanitizer

__all__ = ["EXPLORED", "RULES", "Rule", "Sanitizer", "explore"]
