"""How long a kernel takes: an observer of the CPU machine that gives each event a time.

`recorder` records the warps of a few clusters (`recording`). `replay` runs the recording on a model of the hardware
(`hopper`) and gives a `timeline`: each copy, wait, arrival and matrix product with its start, end and cause.
`prediction` extrapolates to the whole launch, at the clock that `power` allows.
"""

from .constants import Hardware
from .hopper import H100, H200
from .launch import Launch
from .prediction import predict, replay_stopped
from .recorder import Recorder, recording_of
from .result import Prediction
from .timeline import Event, Timeline
from .trace import Trace
from .tracing import Traced
from .turns import predict_turns

__all__ = [
    "H100", "H200", "Event", "Hardware", "Launch", "Prediction", "Recorder", "Timeline", "Trace", "Traced", "predict",
    "predict_turns", "recording_of", "replay_stopped",
]  # fmt: skip
