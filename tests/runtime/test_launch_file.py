"""Launch descriptions: the arguments that they make, and what they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.errors import refused
from warploom.runtime import launch_file
from warploom.testing.expected import expectation

TEXT = """.version 8.7
.target sm_90a
.address_size 64
.entry k(.param .u64 list, .param .align 4 .b8 structure[8]) { ret; }
"""


def arguments(tmp_path: Path, first: str, second: str = 'kind = "bytes"') -> list:
    path = tmp_path / "k.launch.toml"
    path.write_text(f"grid = [1, 1, 1]\nblock = [32, 1, 1]\n[[parameter]]\n{first}\n[[parameter]]\n{second}\n")
    description = launch_file.read(path)
    return description.arguments(description.program(TEXT))


def test_a_small_array_can_be_listed(tmp_path: Path) -> None:
    listed, _ = arguments(tmp_path, 'dtype = "s32"\nvalues = [0, 65536, -1]')
    assert listed.dtype == np.int32
    assert listed.tolist() == [0, 65536, -1]


def test_a_listed_array_can_have_a_shape(tmp_path: Path) -> None:
    listed, _ = arguments(tmp_path, 'dtype = "bf16"\nvalues = [0.5, 2, 3, 4]\nshape = [2, 2]')
    assert listed.astype(float).tolist() == [[0.5, 2], [3, 4]]


@pytest.mark.parametrize("values", ["[1, 300]", "[0.5]", '["a"]', "[[1], [2, 3]]"])
def test_a_listed_number_fits_its_type(tmp_path: Path, values: str) -> None:
    with refused("launch-description"):
        arguments(tmp_path, f'dtype = "u8"\nvalues = {values}')


@pytest.mark.parametrize("dtype", ["pred", "f16x2", "e4m3x4"])
@pytest.mark.parametrize("how", ["shape = [4]", "values = [1]"])
def test_a_type_of_registers_is_none_of_an_array(tmp_path: Path, dtype: str, how: str) -> None:
    with refused("launch-description", got=dtype):
        arguments(tmp_path, f'dtype = "{dtype}"\n{how}')


@pytest.mark.parametrize("second", [
    'kind = "bytes"\n[parameter.at.0]\nname = "list"\ndtype = "u8"\nshape = [4]',
    'kind = "bytes"\n[parameter.at.0]\nas = "x"\ndtype = "u8"\nshape = [4]\n'
    '[parameter.at.8]\nname = "x"\ndtype = "u8"\nshape = [4]',
])  # fmt: skip
def test_two_arrays_of_one_name_are_refused(tmp_path: Path, second: str) -> None:
    with refused("launch-description"):
        arguments(tmp_path, 'dtype = "u8"\nshape = [8]', second)


def test_the_bytes_that_hex_leaves_out_are_zeros(tmp_path: Path) -> None:
    listing = 'dtype = "u8"\nvalues = [1]'
    assert bytes(arguments(tmp_path, listing, 'kind = "bytes"\nhex = "0102"\nsize = 8')[1]) == b"\1\2\0\0\0\0\0\0"
    assert bytes(arguments(tmp_path, listing, 'kind = "bytes"')[1]) == bytes(8)


def test_the_name_of_a_template_s_kernel_fits_into_a_file_s(tmp_path: Path) -> None:
    """Two mangled names of 300 characters that differ in the last one have descriptions of their own."""
    names = [launch_file.beside(tmp_path / "k.ptx", "_Z" + "a" * 300 + last) for last in "xy"]
    for path in names:
        path.write_text("")
    assert names[0] != names[1]
    assert launch_file.beside(tmp_path / "k.ptx", "short").name == "k.short.launch.toml"


def described(tmp_path: Path, head: str) -> launch_file.LaunchFile:
    path = tmp_path / "m.launch.toml"
    path.write_text(f"{head}\ngrid = [1, 1, 1]\nblock = [32, 1, 1]\n" + '[[parameter]]\nkind = "bytes"\n' * 2)
    return launch_file.read(path)


def test_a_launch_says_which_gpu_is_emulated(tmp_path: Path) -> None:
    description = described(tmp_path, 'multiprocessors = 2\nlaunch_control = "decline"')
    machine = description.made(description.program(TEXT)).launch["machine"]
    assert (machine.sms, machine.launch_control, machine.arch) == (2, "decline", "sm_90a")
    usual = described(tmp_path, "")
    assert "machine" not in usual.made(usual.program(TEXT)).launch


@pytest.mark.parametrize(
    "head",
    ["entry = 3", 'devices = "two"', "multiprocessors = 0", 'multiprocessors = "two"', 'launch_control = "maybe"'],
)
def test_a_gpu_that_there_is_not_is_refused(tmp_path: Path, head: str) -> None:
    with refused("launch-description"):
        described(tmp_path, head)


@pytest.mark.parametrize("first", ["as = 3", "as = []", "kind = []", "kind = {a = 1}", "name = 1"])
def test_what_is_no_name_is_refused(tmp_path: Path, first: str) -> None:
    with refused("launch-description"):
        arguments(tmp_path, f'{first}\ndtype = "s32"\nvalues = [1]')


@pytest.mark.parametrize("name, value", [("y", "0"), ("x", "y + 1")])
def test_an_unknown_array_gets_the_way_to_name_one(tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "k.launch.toml"
    path.write_text(f'[[expect]]\nname = "{name}"\nvalue = "{value}"\n')
    with refused("launch-description") as caught:
        expectation(launch_file.read(path), {"x": np.zeros(1)}, {})
    assert "as = " in str(caught.value.hint)


@pytest.mark.parametrize("said", [
    'value = "0"\nrtol = "much"', 'value = "0"\nrtol = true', 'value = "0"\natol = [1]', 'value = "0"\natol = nan',
    'value = "0"\natol = -1', "file = 1", "kernel = []", 'value = ["a"]', "value = {a = 1}",
])  # fmt: skip
def test_what_cannot_be_expected_is_refused(tmp_path: Path, said: str) -> None:
    path = tmp_path / "k.launch.toml"
    path.write_text(
        'grid = 1\nblock = 32\n[[parameter]]\nas = "x"\ndtype = "s32"\nvalues = [1]\n'
        f'[[parameter]]\nkind = "bytes"\n[[expect]]\nname = "x"\n{said}\n'
    )
    with refused("launch-description"):
        description = launch_file.read(path)
        expectation(description, description.made(description.program(TEXT)).arrays, {})


@pytest.mark.parametrize("value", ["10**10**10", "(2**99)**99", "1 << 10**12", "x + 1j", "None", "'a'"])
def test_what_no_array_can_hold_is_refused_at_once(tmp_path: Path, value: str) -> None:
    path = tmp_path / "k.launch.toml"
    path.write_text(f'[[expect]]\nname = "x"\nvalue = "{value}"\n')
    with refused("launch-description", got=value):
        expectation(launch_file.read(path), {"x": np.zeros(1)}, {})


@pytest.mark.parametrize("key, value", [
    ("dtype", '["f32"]'), ("strides", '"a"'), ("strides", "[1.5]"), ("strides", "[true]"), ("seed", '"a"'),
    ("offset", "1.0"), ("device", "true"), ("file", "3"), ("same_as", "1"),
])  # fmt: skip
def test_a_value_of_the_wrong_kind_is_named_with_its_key(tmp_path: Path, key: str, value: str) -> None:
    with refused("launch-description") as caught:
        arguments(tmp_path, f"{key} = {value}")
    assert f"`{key}`" in caught.value.what and f"{key} = " in str(caught.value.expected)


@pytest.mark.parametrize("content", [None, b"", b"\x93NUMPYgarbage", "several", np.array([{}], object)])
def test_a_file_that_is_no_array_is_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / "a.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif isinstance(content, str):
        with path.open("wb") as file:
            np.savez(file, a=np.zeros(1))
    elif content is not None:
        np.save(path, content, allow_pickle=True)
    description = tmp_path / "k.launch.toml"
    description.write_text('[[expect]]\nname = "x"\nfile = "a.npy"\n')
    with refused("launch-description", got=str(path)):
        expectation(launch_file.read(description), {"x": np.zeros(1)}, {})
    with refused("launch-description", got=str(path)):
        arguments(tmp_path, 'file = "a.npy"')


@pytest.mark.parametrize("lines", [
    'kind = "scalar"\nvalue = true', 'kind = "scalar"\ndtype = "f32"\nvalue = 1e39', 'kind = "bytes"\nsize = true',
    'kind = "bytes"\nsize = 1e2', 'kind = "bytes"\nhex = "0"',
])  # fmt: skip
def test_a_number_that_is_none_or_does_not_fit_is_refused(tmp_path: Path, lines: str) -> None:
    with refused("launch-description"):
        arguments(tmp_path, lines)
