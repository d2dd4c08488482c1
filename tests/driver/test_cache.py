"""The cache: keyed by content, never a partial file, never another user's file, and never an obstacle."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from tests.errors import refused
from warploom.driver import cache, folder_lock
from warploom.driver import compile as compiler
from warploom.driver.folder_lock import locked
from warploom.errors import CacheWarning
from warploom.settings import config, from_environment

pytestmark = pytest.mark.usefixtures("needs_ptxas")
SOURCE = Path(__file__).parents[2] / "src"


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def forget() -> None:
    cache.builds().clear()


@pytest.fixture
def compilations(monkeypatch):
    """How often ptxas was actually called."""
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
    with pytest.warns(CacheWarning, match="accessible to other users"):
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
    with pytest.warns(CacheWarning, match="not a folder"):
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


BUILDER = """
import sys; from pathlib import Path; from warploom.driver import compile as c
from warploom.settings import config
text = sys.stdin.read()
for i in range(4):
    with config.override(cache_dir=Path(sys.argv[1])): print(c.build(text + '\\n' * i).source or "built")
"""


def start(script: str, *arguments: object) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, stderr=-1, text=True)


def test_of_two_processes_that_want_the_same_text_one_builds_it(tmp_path, add_text):
    both = [start(BUILDER, tmp_path / "both") for _ in range(2)]
    for process in both:
        process.stdin.write(add_text)
        process.stdin.close()
    outputs = [(process.stdout.read(), process.stderr.read(), process.wait()) for process in both]
    for process in both:
        process.stdout.close(), process.stderr.close()
    assert [status for _, _, status in outputs] == [0, 0], outputs
    sources = [sorted(pair) for pair in zip(*(out.split() for out, _, _ in outputs), strict=True)]
    assert sources == [["built", "disk"]] * 4
    assert len(files(tmp_path / "both")) == 4, "no temporary file is left"


HOLDER = """
import sys, time; from pathlib import Path; from warploom.driver.folder_lock import locked
with locked(Path(sys.argv[1])) as held: print(held, flush=True); time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """A process that holds the lock of a folder."""
    process = start(HOLDER, tmp_path)
    assert process.stdout.readline() == "True\n"
    yield process
    process.kill()
    process.communicate()


def test_a_lock_is_waited_for_and_broken_when_its_holder_hangs(tmp_path, holder):
    began = time.monotonic()
    with locked(tmp_path, patience_s=0.2) as held:
        assert not held and time.monotonic() - began >= 0.2
    assert holder.poll() is None


def test_a_lock_whose_holder_was_killed_is_free(tmp_path, holder):
    holder.kill()
    holder.wait()
    with locked(tmp_path, patience_s=0) as held:
        assert held


def test_a_lock_goes_from_one_to_the_next_also_after_an_error(tmp_path):
    with pytest.raises(KeyError), locked(tmp_path, patience_s=0):
        with locked(tmp_path, patience_s=0) as second:
            assert not second
        raise KeyError
    with locked(tmp_path, patience_s=0) as held:
        assert held


def test_where_there_are_no_locks_one_builds_without(cache_dir, compilations, add_text, monkeypatch):
    monkeypatch.setattr(folder_lock, "fcntl", None)
    assert compiler.build(add_text).source == "" and len(files(cache_dir)) == 1


def test_what_was_not_used_for_longest_goes_when_the_cache_is_full(cache_dir, add_text):
    texts = [add_text + "\n" * i for i in range(6)]
    size = 0.0
    for text in texts[:4]:
        key = compiler.build(text).key
        size += (cache_dir / "cubin" / key[:2] / key).stat().st_size / 1e6
        assert len(files(cache_dir)) <= 4
    ages = dict(enumerate((30, 20, 10, 5)))  # in minutes; then the first one is used again
    for at, text in enumerate(texts[:4]):
        key = compiler.build(text).key
        then = time.time() - 60 * ages[at]
        os.utime(cache_dir / "cubin" / key[:2] / key, (then, then))
    forget()
    assert compiler.build(texts[0]).source == "disk"
    with config.override(cache_mb=size):
        compiler.build(texts[4])
    forget()
    left = {at for at, text in enumerate(texts[:5]) if compiler.build(text).source == "disk"}
    assert {0, 4} <= left and not {1, 2} & left, "a tenth is left free: two went"


def test_a_cubin_larger_than_the_whole_cache_is_kept_until_the_next(cache_dir, add_text):
    with config.override(cache_mb=1e-6):
        first, second = compiler.build(add_text).key, compiler.build(add_text + "\n").key
    assert [path.name for path in files(cache_dir)] == [second] and first != second


def test_what_a_killed_process_left_half_written_goes(cache_dir, add_text):
    compiler.build(add_text)
    (path,) = files(cache_dir)
    fresh, old = path.parent / ".aaaa-fresh", path.parent / ".aaaa-old"
    fresh.write_text("half"), old.write_text("half")
    os.utime(old, (time.time() - 7200,) * 2)
    forget()
    compiler.build(add_text + "\n")
    assert fresh.exists() and not old.exists()


@pytest.mark.parametrize("size", [0, -1, float("nan"), float("inf"), "64", True])
def test_a_size_that_is_none_is_refused(size):
    with refused("argument", got=repr(size)), config.override(cache_mb=size):
        pass


def test_the_size_comes_from_the_environment():
    assert from_environment({"WARPLOOM_CACHE_MB": "64"}).cache_mb == 64
    with refused("argument", got="much"):
        from_environment({"WARPLOOM_CACHE_MB": "much"})
