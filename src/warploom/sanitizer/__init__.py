"""The sanitizer: watches an emulation and says which rule of the PTX ISA it breaks, at which two lines.

It knows no values, only who touched what in which order, so it finds a race also where this schedule happened to
give the right result. `checkers` judge, `happens_before` knows the order, `shadow` remembers what touched each byte,
`rules` says what is wrong and why, `report` puts findings into words.
"""

from .explore import EXPLORED, explore
from .loose_reads import SPOILS, SpoiledReads
from .rules import RULES, Rule
from .sanitizer import Sanitizer

__all__ = ["EXPLORED", "RULES", "SPOILS", "Rule", "Sanitizer", "SpoiledReads", "explore"]
