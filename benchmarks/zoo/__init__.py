"""The mutant zoo: every kernel of the package, every mutation, and whether the sanitizer names what is wrong."""

from .judge import Verdict, judge
from .kernels import Subject, subjects

__all__ = ["Subject", "Verdict", "judge", "subjects"]
