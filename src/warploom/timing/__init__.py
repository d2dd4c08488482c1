"""How long a kernel takes: an observer of the CPU machine that gives each event a time.

`recorder` writes down what the warps of a few clusters do (`recording`), `replay` lets a model of the hardware
(`hopper`) do it again against the clock, and `timeline` is what comes out: each copy, wait, arrival and matrix product
with its start, its end and its cause. `prediction` makes a whole launch of it, at the clock that `power` allows.
"""

from .constants import Hardware
from .hopper import H200
from .prediction import Launch, predict, replay_stopped
from .recorder import Recorder, recording_of
from .result import Prediction
from .timeline import Event, Timeline
from .trace import Trace
from .tracing import Traced
from .turns import predict_turns

__all__ = [
    "H200", "Event", "Hardware", "Launch", "Prediction", "Recorder", "Timeline", "Trace", "Traced", "predict",
    "predict_turns", "recording_of", "replay_stopped",
]  # fmt: skip
