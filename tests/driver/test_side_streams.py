"""Copies next to a kernel, enqueued with a mock driver: which calls, in which order, and what they copy."""

from __future__ import annotations

SCRIPT = """
from warploom.driver.library import load
from warploom.driver.side_streams import CopyOfRows, SetFlag, SideStreams

source = np.arange(60, dtype=np.uint8).reshape(4, 15)
one, flag = np.ones(1, np.uint32), np.zeros(2, np.uint32)
target, whole = np.zeros((4, 15), np.uint8), np.zeros((4, 15), np.uint8)
at = lambda array: array.ctypes.data
copies = [
    [CopyOfRows(at(target) + 3, 3, 4, 5, 15, of=0), SetFlag(at(flag), at(one))],
    [CopyOfRows(at(whole), 0, 4, 15, 15, of=0), SetFlag(at(flag) + 4, at(one))],
]
"""


def test_copies_are_between_fork_and_join_stream_by_stream(pretend):
    log = pretend(
        SCRIPT
        + """
with load().activated(0):
    side = SideStreams(0, copies)
    for _ in range(2):
        side.begin(0x40, [at(source)])
        side.end(0x40, [at(source)])
assert (target[:, 3:8] == source[:, 3:8]).all() and not target[:, :3].any() and not target[:, 8:].any()
assert (whole == source).all() and flag.tolist() == [1, 1]
"""
    )
    made = [line for line in log if "flags" in line]
    assert made == ["stream 101 flags 1", "stream 102 flags 1"]
    called = [line for line in log if line.startswith(("event", "copy", "stream", "write")) and line not in made]
    assert called == 2 * [
        "event 1 stream 40", "stream 101 waits for event 1", "stream 102 waits for event 1",
        "copy 4 x 5 stream 101", "copy 60 stream 102", "write 1 stream 101", "write 1 stream 102",
        "event 2 stream 101", "event 3 stream 102", "stream 40 waits for event 2", "stream 40 waits for event 3",
    ]  # fmt: skip


def test_flags_are_copied_in_the_capture_of_a_graph(pretend):
    log = pretend(
        SCRIPT
        + """
with load().activated(0):
    SideStreams(0, copies).begin(0x40, [at(source)])
assert flag.tolist() == [1, 1]
""",
        FAKE_CUDA_CAPTURING=1,
    )
    assert "copy 4 stream 101" in log and not [line for line in log if line.startswith("write")]


def test_a_thread_without_a_context_gets_the_gpu_s(pretend):
    pretend(
        SCRIPT
        + """
side = SideStreams(0, copies)
side.begin(0x40, [at(source)])
side.end(0x40, [at(source)])
assert flag.tolist() == [1, 1]
"""
    )


def test_a_copy_that_is_refused_is_an_error_with_cuda_s_name(pretend):
    pretend(
        SCRIPT
        + """
with load().activated(0):
    side = SideStreams(0, copies)
    with pytest.raises(errors.DriverError) as caught:
        side.begin(0x40, [at(source)])
assert "cuMemcpyAsync" in str(caught.value) and "copies next to a kernel" in str(caught.value)
""",
        FAKE_CUDA_COPY=2,
    )
