"""Resolves `MODULE:KERNEL` to a kernel.

A file with relative imports is loaded as a module of its package.

warploom.kernels.naive:gemm         a module that can be imported
examples/softmax.py:softmax         a file
examples/softmax.py                 a file with one kernel
kernels/gemm.py:build M=256         a function that makes one, and its arguments
dump/gemm.ptx, dump/gemm.ptx:main   a PTX text
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ArgumentError, SourceLocation, WarploomError
from ..near import closest
from ..runtime import Program, program_of


def program(spec: str, settings: Sequence[str] = ()) -> Program:
    """The program that `spec` names. Raises ArgumentError if there is no such kernel."""
    path, name = split(spec)
    if path.endswith(".ptx"):
        return program_of(Path(path), entry=name or None)
    found = kernel(spec, settings)
    with running(path, "has a kernel that cannot be traced"):
        return found.program()


def kernel(spec: str, settings: Sequence[str] = (), module: ModuleType | None = None) -> Any:
    """The kernel object that `spec` names, or that its function makes; `module`: the module, if already loaded."""
    place, name = split(spec)
    module = module or load(place)
    kernels = kernels_of(module)
    if not name:
        if len(kernels) == 1:
            return next(iter(kernels.values()))
        raise ArgumentError(
            f"{place} has {len(kernels) or 'no'} kernels: name one",
            expected=f"{place}:NAME, NAME one of {_names(module, kernels)}", got=spec,
        )  # fmt: skip
    if not hasattr(module, name):
        raise ArgumentError(f"{place} has no `{name}`", expected=f"one of {_names(module, kernels)}", got=name)
    found = getattr(module, name)
    if is_kernel(found):
        if settings:
            raise ArgumentError(
                f"{spec} is a kernel and takes no {settings[0]!r}", hint="only a function that makes a kernel does"
            )
        return found
    if not callable(found):
        raise ArgumentError(f"{spec} is neither a kernel nor a function that makes one", got=type(found).__name__)
    return _made(spec, found, arguments(settings))


def split(spec: str) -> tuple[str, str]:
    """("examples/x.py", "gemm") for "examples/x.py:gemm"; the name is "" if there is none."""
    text, colon, name = spec.partition(".ptx:")
    if colon:  # the name may be that of the C++ source: gemm.ptx:ns::gemm<float>
        return f"{text}.ptx", name
    place, colon, name = spec.rpartition(":")
    # A drive letter is not a module: C:\kernels\gemm.py
    return (place, name) if colon and len(place) > 1 and name.isidentifier() else (spec, "")


def how_to_get_ptx(path: Path) -> str | None:
    """The command that makes a PTX text from a CUDA source or a binary; None for any other file."""
    if path.suffix == ".cu":
        return f"compile it to PTX: nvcc -arch=sm_90a -lineinfo -ptx {path} -o {path.with_suffix('.ptx')}"
    if path.suffix in (".so", ".o", ".a", ".fatbin", ".exe"):
        return (
            f"cuobjdump -ptx {path} > {path.with_suffix('.ptx')} shows its PTX, if it was compiled with PTX in it; "
            "remove the lines in front of .version"
        )
    if path.suffix in (".cubin", ".sass"):
        return "it holds machine code, of which no PTX can be made: compile the source with nvcc -ptx"
    return None


def arguments(settings: Sequence[str]) -> dict[str, Any]:
    """{"M": 128} for ["M=128"]. Raises ArgumentError for anything but NAME=VALUE."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals or not name.isidentifier():
            raise ArgumentError("an argument is not NAME=VALUE", expected="NAME=VALUE", got=setting)
        try:
            found[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            found[name] = value
    return found


def is_kernel(value: object) -> bool:
    """True if it lowers to a Program."""
    return callable(getattr(value, "program", None)) and not isinstance(value, (type, ModuleType))


def is_module(place: str) -> bool:
    """True if `place` is the dotted name of a module that exists, and not a file."""
    if not all(part.isidentifier() for part in place.split(".")):
        return False
    try:
        return importlib.util.find_spec(place) is not None
    except (ImportError, ValueError):
        return False


def kernels_of(module: ModuleType) -> dict[str, Any]:
    """The kernels among a module's public names, each once."""
    found: dict[int, tuple[str, Any]] = {}
    for name, value in vars(module).items():
        if not name.startswith("_") and is_kernel(value):
            found.setdefault(id(value), (name, value))
    return dict(found.values())


def file_of(place: str) -> Path:
    """The file of a module given as a file or a dotted name."""
    path = Path(place)
    return path if path.suffix == ".py" else Path(str(load(place).__file__))


def load(place: str) -> ModuleType:
    """The module of a file or a dotted name. Raises ArgumentError, with the line, if it cannot be loaded."""
    path = Path(place)
    if path.suffix == ".py" or path.exists():
        if not path.is_file():
            raise ArgumentError("the file does not exist", got=place, code="file")
        try:
            return _load_file(path)
        except ArgumentError as error:
            if not (isinstance(error.__cause__, ImportError) and "relative import" in str(error.__cause__)):
                raise
            found = _load_in_package(path)
            if found is None:
                error.hint = "it is not in a package: its folder has no __init__.py"
                raise
            return found
    with running(place, "cannot be loaded"):
        return importlib.import_module(place)


def _load_in_package(path: Path) -> ModuleType | None:
    """The module of a file in a package (its folder has an __init__.py); None if it is not in a package."""
    names, folder = [path.stem], path.resolve().parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        names.insert(0, folder.name)
        folder = folder.parent
    if len(names) == 1 or not path.stem.isidentifier():
        return None
    dotted = ".".join(names)
    sys.path.insert(0, str(folder))
    try:
        with running(str(path), "cannot be loaded"):
            found = importlib.import_module(dotted)
    finally:
        sys.path.remove(str(folder))
    other = getattr(found, "__file__", None)
    if other is None or Path(other).resolve() != path.resolve():
        raise ArgumentError(
            f"{path} is the module {dotted}, but another file of that name is installed", got=other,
            hint="name the module, or put the folder above its package first in PYTHONPATH",
        )  # fmt: skip
    return found


def _load_file(path: Path) -> ModuleType:
    other = sys.modules.get(path.stem)
    taken = other is not None and getattr(other, "__file__", None) != str(path)
    spec = importlib.util.spec_from_file_location(f"{path.stem} in {path.parent}" if taken else path.stem, path)
    if spec is None or spec.loader is None:
        takes = "`check`, `trace`, `python`, `inspect` and `time --predict` take PTX texts"
        if path.suffix != ".ptx":
            takes = how_to_get_ptx(path) or f"{takes}, in files that end in .ptx"
        raise ArgumentError("this is not a Python file", expected="FILE.py", got=str(path), hint=takes)
    module = importlib.util.module_from_spec(spec)
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)
    sys.modules[spec.name] = module  # a dataclass looks up its module there
    try:
        with running(str(path), "cannot be loaded"):
            spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(spec.name, None)
        raise
    finally:
        sys.path.remove(beside)
    return module


@contextmanager
def running(place: str, what: str) -> Iterator[None]:
    """Runs user Python code: an exception becomes an ArgumentError with its line; `what` says what ran."""
    try:
        # Its output goes to stderr: stdout is for the command's own output.
        with redirect_stdout(sys.stderr):
            yield
    except WarploomError as error:
        if error.where is None:
            error.where = _own_line(place, error)
        raise
    except (Exception, SystemExit) as error:
        raise _refusal(place, error, what) from error


def _refusal(place: str, error: Exception | SystemExit, what: str) -> ArgumentError:
    where = _own_line(place, error)
    if isinstance(error, SyntaxError) and error.filename:
        where = SourceLocation(place, error.lineno or 0, error.offset or 0)
    return ArgumentError(
        f"{place} {what}: {type(error).__name__}: {error}",
        where=where,
        code="python-error",
        hint='call it under `if __name__ == "__main__":`' if isinstance(error, SystemExit) else _names_there(error),
    )


def _names_there(error: BaseException) -> str | None:
    """Names that the object has and that are close to the missing one."""
    if not isinstance(error, AttributeError) or error.obj is None or not error.name:
        return None
    known = [name for name in dir(error.obj) if not name.startswith("_")]
    near = [name for name in known if name.startswith(error.name) or error.name.startswith(name)]
    near += [name for name in closest(error.name, known, 3) if name not in near]
    return f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(known[:12])}" if known else None


def _own_line(place: str, error: BaseException) -> SourceLocation | None:
    """The innermost line of the file itself in the traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).name == Path(place).name]
    return SourceLocation(place, own[-1].lineno or 0) if own else None


def _made(spec: str, function: Any, given: Mapping[str, Any]) -> Any:
    try:
        signature = inspect.signature(function)
        signature.bind(**given)
    except (TypeError, ValueError) as error:
        raise ArgumentError(
            f"{spec} cannot be called: {error}", expected=f"{spec} with {_wanted(function)}",
            got=" ".join(f"{name}={value}" for name, value in given.items()) or "no arguments",
            hint="arguments go after the name, as in M=128 N=128 K=128",
        ) from None  # fmt: skip
    with running(split(spec)[0], f"has a `{split(spec)[1]}` that makes no kernel"):
        made = function(**given)
    if not is_kernel(made):
        raise ArgumentError(f"{spec} makes no kernel", expected="an object with .program()", got=type(made).__name__)
    return made


def _wanted(function: Any) -> str:
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "its arguments"


def _names(module: ModuleType, kernels: Mapping[str, Any]) -> str:
    makers = [
        name for name, value in vars(module).items()
        if inspect.isfunction(value) and value.__module__ == module.__name__ and name.startswith("build")
    ]  # fmt: skip
    return ", ".join([*kernels, *makers]) or "none: it has no kernel"
