"""The sanitizer: watches an emulation and reports violations of PTX ISA rules, with the source lines involved.

It ignores values and tracks only which thread accessed what in which order, so it finds a race even if this schedule
happens to give the right result. `checkers` judge accesses, `happens_before` tracks their order, `shadow` records the
last accesses to each byte, `rules` says what is wrong and why, `report` puts findings into words.
"""

from .explore import EXPLORED, explore
from .loose_reads import SPOILS, PerturbedLoads
from .rules import RULES, Rule
from .sanitizer import Sanitizer

__all__ = ["EXPLORED", "RULES", "SPOILS", "PerturbedLoads", "Rule", "Sanitizer", "explore"]
