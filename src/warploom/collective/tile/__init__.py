"""Tiles: the tiles of a CTA, their order, the clusters that compute them, and the roles of warps."""
