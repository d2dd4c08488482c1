"""Rows that are still to be written."""

FORMS = ()
