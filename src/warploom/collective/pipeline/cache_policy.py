"""L2 cache hints for loads."""

from __future__ import annotations

from ...isa.dtypes import b64
from ...lang import ptx, reg
from ...lang.values import Register


def read_once() -> Register:
    """The L2 policy of weights: evict first, because they are not read again before all of L2 has been replaced."""
    policy = reg.scalar(b64)
    ptx.inst.createpolicy.fractional.L2__evict_first.b64(policy, 1.0)
    return policy
