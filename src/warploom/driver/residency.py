"""How many clusters a GPU holds at one time, which the driver knows and no quotient says.

The GPCs of a chip differ in their multiprocessors, and a cluster stays within one of them: 132 multiprocessors of an
H200 hold 30 clusters of four CTAs.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache

from . import compile as compiler
from .launch import PreparedLaunch
from .library import load
from .module import modules

LEGACY_STREAM = 0
PROBE = """.version 7.8
.target sm_90
.address_size 64
.visible .entry probe() { ret; }
"""


@lru_cache(maxsize=64)
def clusters(index: int, ctas: int) -> int:
    """The number of clusters of `ctas` CTAs that GPU `index` holds at one time, with one CTA on each multiprocessor;
    0 if the driver does not say.

    Raises DriverError if the probe cannot be loaded, as during a capture.
    """
    library = load()
    device = library.device(index)
    with library.activated(index):
        built = compiler.build(PROBE, arch=device.arch, entry="probe")
        kernel = modules().kernel(built, "probe", index, LEGACY_STREAM, device.shared_per_cta, ctas)
        launch = PreparedLaunch(kernel, (ctas, 1, 1), (32, 1, 1), (ctas, 1, 1), device.shared_per_cta, [])
        count = ctypes.c_int(0)
        ask = getattr(library.native, "cuOccupancyMaxActiveClusters", None)
        status = (
            1
            if ask is None
            else ask(ctypes.byref(count), ctypes.c_void_p(kernel.function), launch.config(LEGACY_STREAM))
        )
    return 0 if status else count.value
