"""Tiles: which one a CTA computes, in which order, by which cluster, and what each warp does for it."""
