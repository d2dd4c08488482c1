"""The fields of a rule: an id, what it forbids and why, and two small kernels, one that violates it and one that does
not."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING, PERFORMANCE = "error", "warning", "performance"
DATA_BYTES = 8192
"""Size of the buffer that an example's kernel gets as its only argument."""


@dataclass(frozen=True)
class Example:
    """The body of a small kernel; `grid` in CTAs, 0 for one cluster.

    On entry, %data holds the address of a buffer of DATA_BYTES bytes, %idx holds %tid.x, %first is true in thread
    0, %rank is the CTA's rank in its cluster, and `tile` (4 KiB) and `bar` (two mbarriers) are in shared memory.
    With several `devices`, which share the buffer, %gpu is the kernel's own GPU index; `calls`: launches on each.
    """

    body: str
    threads: int = 128
    cluster: int = 1
    grid: int = 0
    directives: str = ""
    target: str = "sm_90a"
    devices: int = 1
    calls: int = 1

    def text(self) -> str:
        """The whole PTX text; its kernel is `k`."""
        lines = "\n".join(f"    {line.strip()}" for line in self.body.strip().splitlines())
        frame = _FRAME if self.devices == 1 else _SEVERAL
        return frame.replace("BODY", lines).replace("DIRECTIVES", self.directives).replace("TARGET", self.target)


@dataclass(frozen=True)
class Rule:
    """One rule.

    Attributes:
        id: the id in findings.
        numbers: its numbers in the project's list of misuses.
        severity: ERROR is undefined behaviour or a wrong result, WARNING is fragile, PERFORMANCE is slow.
        title: one line.
        why: a few sentences; section: of the PTX ISA.
        fix: what to do.
        missing: the edge missing between two accesses that violate this rule (`report.explain`); clause: in words.
        entails: rules whose findings about the same instruction are mere consequences of an error of this rule.
        stops: True if the machine also ends with an error that says the same.
        first: True if its findings precede all others, and the findings it entails are omitted everywhere.
    """

    id: str
    numbers: str
    severity: str
    title: str
    why: str
    section: str
    fix: str
    missing: str = ""
    clause: str = ""
    bad: Example | None = None
    good: Example | None = None
    entails: tuple[str, ...] = ()
    first: bool = False
    stops: bool = False


_FRAME = """\
.version 8.7
.target TARGET
.address_size 64
.visible .entry k(.param .u64 data) DIRECTIVES
{
    .reg .pred %p<8>;
    .reg .pred %first;
    .reg .b32 %r<16>;
    .reg .f32 %f<16>;
    .reg .b32 %idx;
    .reg .b32 %rank;
    .reg .b64 %d<8>;
    .reg .b64 %data;
    .shared .align 1024 .b8 tile[4096];
    .shared .align 8 .b64 bar[2];
    ld.param.u64 %data, [data];
    mov.u32 %idx, %tid.x;
    mov.u32 %rank, %cluster_ctarank;
    setp.eq.u32 %first, %idx, 0;
BODY
    ret;
}
"""
_SEVERAL = _FRAME.replace("(.param .u64 data)", "(.param .u64 data, .param .u32 gpu)").replace(
    "    ld.param.u64 %data, [data];\n",
    "    .reg .b32 %gpu;\n    ld.param.u64 %data, [data];\n    ld.param.u32 %gpu, [gpu];\n",
)
"""The same for several GPUs."""
