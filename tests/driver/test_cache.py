"""The cache: by content, never half a file, never somebody else's, never in the way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from warploom.driver import cache
from warploom.driver import compile as compiler
from warploom.errors import CacheWarning
from warploom.settings import config

pytestmark = pytest.mark.usefixtures("needs_ptxas")
SOURCE = Path(__file__).parents[2] / "src"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def forget() -> None:
    cache.builds().clear()


@pytest.fixture
def compilations(monkeypatch):
    """How often ptxas was really called."""
    calls = []
    real = compiler._by_ptxas
    monkeypatch.setattr(compiler, "_by_ptxas", lambda *arguments: calls.append(1) or real(*arguments))
    return calls


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error", CacheWarning)
        yield


def test_the_second_build_comes_from_memory_the_next_process_s_from_disk(cache_dir, compilations, add_text):
    first = compiler.build(add_text)
    assert (first.source, compiler.build(add_text).source) == ("", "memory")
    forget()
    again = compiler.build(add_text)
    assert again.source == "disk"
    assert (again.cubin, again.log, again.resources) == (first.cubin, first.log, first.resources)
    assert len(compilations) == 1


def test_another_text_target_flag_or_line_setting_is_another_build(cache_dir, add_text):
    keys = {compiler.build(add_text).key, compiler.build(add_text + "\n").key}
    keys.add(compiler.build(add_text, flags=("-O1",)).key)
    keys.add(compiler.build(add_text.replace("sm_90a", "sm_90"), arch="sm_90").key)
    with config.override(line_info=False):
        keys.add(compiler.build(add_text).key)
    assert len(keys) == 5


def test_borders_between_the_parts_of_a_key_count():
    assert cache.key_of("ab", "c") != cache.key_of("a", "bc")


@pytest.mark.parametrize("damage", ["truncated", "one bit", "empty", "other file", "garbage"])
def test_a_damaged_file_is_seen_and_built_anew(cache_dir, compilations, add_text, damage):
    good = compiler.build(add_text)
    (path,) = files(cache_dir)
    data = path.read_bytes()
    other = cache.pack(cache.Entry(b"cubin of another text", "", ""), "another key")
    flipped = bytearray(data)
    flipped[-100] ^= 1
    damaged = {"truncated": data[: len(data) // 2], "one bit": bytes(flipped), "empty": b"", "other file": other}
    path.write_bytes(damaged.get(damage, b"\xff" * 99))
    forget()
    with pytest.warns(CacheWarning, match="damaged"):
        again = compiler.build(add_text)
    assert again.cubin == good.cubin and len(compilations) == 2
    forget()
    assert compiler.build(add_text).source == "disk"


def test_the_folder_is_the_user_s_alone(cache_dir, add_text):
    compiler.build(add_text)
    assert (cache_dir / "cubin").stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o077 == 0 for path in files(cache_dir))


def test_a_folder_that_is_open_to_others_is_not_used(cache_dir, compilations, add_text):
    compiler.build(add_text)
    (cache_dir / "cubin").chmod(0o770)
    forget()
    with pytest.warns(CacheWarning, match="open to others"):
        assert compiler.build(add_text).source == ""
    assert len(compilations) == 2


def test_a_folder_of_somebody_else_is_not_used(cache_dir, compilations, add_text, monkeypatch):
    compiler.build(add_text)
    forget()
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    with pytest.warns(CacheWarning, match="another user"):
        assert compiler.build(add_text).source == ""
    assert len(compilations) == 2


def test_a_symbolic_link_in_place_of_the_folder_is_not_followed(cache_dir, add_text, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    cache_dir.mkdir()
    (cache_dir / "cubin").symlink_to(elsewhere)
    with pytest.warns(CacheWarning, match="no folder"):
        compiler.build(add_text)
    assert not files(elsewhere)


@pytest.mark.parametrize("call, number", [("write", errno.ENOSPC), ("replace", errno.ENOSPC), ("mkdir", errno.EROFS)])
def test_a_full_or_read_only_disk_is_a_warning_and_the_build_goes_on(cache_dir, add_text, monkeypatch, call, number):
    real = getattr(os, call)

    def refuse(*arguments, **rest):
        if call != "mkdir" or str(cache_dir) in str(arguments[0]):
            raise OSError(number, os.strerror(number))
        return real(*arguments, **rest)

    monkeypatch.setattr(os, call, refuse)
    with pytest.warns(CacheWarning, match="cannot be written") as caught:
        assert compiler.build(add_text).cubin[:4] == b"\x7fELF"
        assert compiler.build(add_text + "\n").cubin[:4] == b"\x7fELF"
    assert len(caught) == 1, "one folder warns once"
    monkeypatch.undo()
    assert not files(cache_dir) if cache_dir.exists() else True


def test_a_file_in_place_of_the_cache_folder_is_a_warning(tmp_path, add_text):
    (tmp_path / "taken").write_text("")
    forget()
    with config.override(cache_dir=tmp_path / "taken"), pytest.warns(CacheWarning):
        assert compiler.build(add_text).source == ""
    forget()


def test_without_a_cache_folder_nothing_is_written(tmp_path, compilations, add_text):
    forget()
    with config.override(cache_dir=None):
        compiler.build(add_text)
        forget()
        compiler.build(add_text)
    assert len(compilations) == 2


def test_threads_that_want_the_same_text_build_it_once(cache_dir, compilations, add_text):
    results = []

    def build():
        with config.override(cache_dir=cache_dir):
            results.append(compiler.build(add_text).cubin)

    threads = [threading.Thread(target=build) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and len(set(results)) == 1
    assert len(compilations) == 1


def test_two_processes_may_build_the_same_text(tmp_path, add_text):
    script = (
        "import sys; from pathlib import Path; from warploom.driver import compile as c\n"
        "from warploom.settings import config\n"
        "text = sys.stdin.read()\n"
        "for i in range(4):\n"
        "    with config.override(cache_dir=Path(sys.argv[1])): print(len(c.build(text + '\\n' * i).cubin))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error"}
    start = [sys.executable, "-c", script, str(tmp_path / "both")]
    both = [subprocess.Popen(start, env=environment, stdin=-1, stdout=-1, stderr=-1, text=True) for _ in range(2)]
    for process in both:
        process.stdin.write(add_text)
        process.stdin.close()
    outputs = [(process.stdout.read(), process.stderr.read(), process.wait()) for process in both]
    for process in both:
        process.stdout.close(), process.stderr.close()
    assert [status for _, _, status in outputs] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0]
    assert len(files(tmp_path / "both")) == 4, "no temporary file is left"
