"""Small PTX texts, a copy, a right one and one that forgets a proxy fence, and launch descriptions for them."""

from __future__ import annotations

from pathlib import Path

from warploom.sanitizer.rules import RULES

COPY = """\
.version 8.7
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 from, .param .u64 to, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<2>;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra done;
    mul.wide.u32 %rd3, %r2, 4;
    add.u64 %rd1, %rd1, %rd3;
    add.u64 %rd2, %rd2, %rd3;
    ld.global.f32 %f1, [%rd1];
    st.global.f32 [%rd2], %f1;
done:
    ret;
}
"""
"""Copies n floats, a thread each; bounds are checked."""

LAUNCH = """\
grid = [1]
block = [128]
[[parameter]]
name = "data"
dtype = "u32"
shape = [2048]
"""


def good() -> str:
    example = RULES["generic-write-before-async-read"].good
    assert example is not None
    return example.text()


def bad() -> str:
    example = RULES["generic-write-before-async-read"].bad
    assert example is not None
    return example.text()


def write(folder: Path, name: str, text: str, launch: str | None = LAUNCH) -> Path:
    """A text in a folder, with a launch description next to it unless `launch` is None."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.ptx"
    path.write_text(text)
    if launch is not None:
        path.with_suffix(".launch.toml").write_text(launch)
    return path
