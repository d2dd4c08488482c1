"""The mutant zoo: kernels of the package, every mutation of each, and whether the sanitizer names what is wrong."""

from .judge import Healthy, Verdict, judge
from .kernels import Subject, subject, subjects
from .sites import Sites

__all__ = ["Healthy", "Sites", "Subject", "Verdict", "judge", "subject", "subjects"]
