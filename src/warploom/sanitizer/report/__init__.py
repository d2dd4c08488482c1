"""Findings, their explanations, and how they are printed."""
