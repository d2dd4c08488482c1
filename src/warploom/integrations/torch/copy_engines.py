"""PyTorch: copy engines send this GPU's rows of A to its peers, next to the kernel that waits for such rows.

begin    enqueue the copies and their flags after the work in the current stream
end      make the current stream wait for them, so that A may be overwritten
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...driver.side_streams import CopyOfRows, SetFlag, SideStreams
from ...kernels.hopper.copied_rows import Plan, RowCopy
from .symmetric import Exchange

STREAMS = 2
"""Number of alternating streams: while a copy starts in one, another moves data in the other."""
_WORD = 4


class Transfers:
    """The copies of one call; see the module's docstring.

    Args:
        rank: this GPU's rank; plan: the copies; exchange: the destination memory.
        travel: True to send the rows' scales, too, into the first of the further arrays.
    """

    def __init__(self, rank: int, plan: Plan, exchange: Exchange, device: torch.device, *, travel: bool) -> None:
        self.device, self.travel = device.index or 0, travel
        self.one = torch.ones(1, dtype=torch.int32, device=device)
        streams: list[list[CopyOfRows | SetFlag]] = [[] for _ in range(STREAMS)]
        for number, part in enumerate(plan.parts(rank)):
            streams[number % STREAMS] += self._copies(rank, plan, exchange, part)
        torch.cuda.synchronize(device)
        self.side = SideStreams(self.device, streams)

    def _copies(self, rank: int, plan: Plan, exchange: Exchange, part: RowCopy) -> Iterator[CopyOfRows | SetFlag]:
        """Yield the copies of a part's rows and scales, and its flag after them."""
        begin = part.first * plan.row_bytes + part.start
        target = exchange.data[part.to].data_ptr() + rank * plan.rows * plan.row_bytes + begin
        yield CopyOfRows(target, begin, part.rows, part.bytes, plan.row_bytes, of=0)
        if self.travel and part.begins:
            first, size = part.first * _WORD, part.rows * _WORD
            target = exchange.more[0][part.to].data_ptr() + rank * plan.rows * _WORD + first
            yield CopyOfRows(target, first, 1, size, size, of=1)
        yield SetFlag(exchange.counters[part.to].data_ptr() + part.flag * _WORD, self.one.data_ptr())

    def begin(self, a: Tensor, scales: Tensor | None) -> None:
        """Enqueue the copies of these rows of this GPU, and of their scales. Raises DriverError."""
        self.side.begin(self._stream(), self.addresses(a, scales))

    def end(self, a: Tensor, scales: Tensor | None) -> None:
        """Make the current stream wait for the copies. Raises DriverError."""
        self.side.end(self._stream(), self.addresses(a, scales))

    def _stream(self) -> int:
        return int(torch._C._cuda_getCurrentRawStream(self.device))

    def addresses(self, a: Tensor, scales: Tensor | None) -> list[int]:
        """Return the source addresses of the copies."""
        return [a.data_ptr(), *([scales.data_ptr()] if self.travel and scales is not None else [])]
