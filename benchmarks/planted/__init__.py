"""Bugs planted by rule into texts of other compilers, and whether `warploom check` calls them errors."""
