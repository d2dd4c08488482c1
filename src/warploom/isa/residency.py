"""How many clusters a GPU holds at one time. A cluster stays within a GPC, whose SMs it need not divide, so some SMs
stay empty. On a GPU the driver knows (`driver.residency`)."""

from __future__ import annotations

H200_SMS = 132
H200_CLUSTERS = {3: 39, 4: 30, 8: 14}
"""Clusters of that many CTAs that an H200 holds at one time: that of three is in docs/measured-facts.md, that of eight
is a guess."""


def clusters_at_once(ctas: int, sms: int) -> int:
    """Clusters of `ctas` CTAs that a GPU with `sms` multiprocessors holds at one time, one CTA on each: what an H200
    holds, scaled. Two multiprocessors always stand together."""
    if ctas <= 2:
        return sms // ctas
    return H200_CLUSTERS.get(ctas, H200_SMS // ctas) * sms // H200_SMS
