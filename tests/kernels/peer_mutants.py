"""Weakened hand-overs between GPUs, by what they leave out: a pattern of the PTX text, and what replaces it."""

HAND_OVERS = {
    "a release that reaches no other GPU": ("red.release.sys", "red.release.gpu"),
    "a signal without release": ("red.release.sys", "red.relaxed.sys"),
    "an acquire of its own GPU": ("ld.acquire.sys", "ld.acquire.gpu"),
    "a wait without acquire": ("ld.acquire.sys", "ld.relaxed.sys"),
}
