"""Inspecting kernels: the demo, timing by the project's protocols, evidence files."""
