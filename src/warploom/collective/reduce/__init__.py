"""Sums and maxima across lanes, across the CTAs of a cluster, and across a grid."""
