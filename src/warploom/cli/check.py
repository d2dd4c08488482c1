"""`check`: run a kernel in the emulator under the sanitizer, and report what is wrong with it.

A kernel needs a launch to run. A text has a launch description next to it. A Python file has an `example()` that
yields (kernel, arguments, check), or its kernels have their own examples. Without a launch, only the rules that need
none are checked, and the report says so. A rung of the ladder runs with the arguments of
`warploom ladder --emulate`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer

from ..emulator.machine.finding import Finding
from ..errors import ArgumentError, ArgumentTypeError, WarploomError
from ..plural import counted
from ..runtime import launch_file
from ..runtime.program import read_text
from ..sanitizer.report.rendering import Sources
from ..testing import Checked, check_emulated, check_entries, check_folder, check_static, texts_in
from . import find, sarif
from .findings import say_checked
from .output import FINDINGS, plain, say, say_json
from .still import still


def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE.py|FILE.ptx|MODULE|FOLDER",
            help="FILE.py:KERNEL, FILE.ptx:KERNEL or MODULE:KERNEL selects one of several; for a folder, all .ptx "
            "files below it.",
        ),
    ],
    launch: Annotated[
        Path | None, typer.Option(help="Launch description of a text; FILE.launch.toml next to it by default.")
    ] = None,
    init: Annotated[
        bool, typer.Option("--init", help="Write missing launch descriptions, to be filled in, and stop.")
    ] = False,
    schedule: Annotated[
        str,
        typer.Option(
            help="When asynchronous work completes: eager, lazy, random, starve, pct; explore tries several, "
            "exhaustive runs all interleavings of a small kernel."
        ),
    ] = "lazy",
    seed: Annotated[int, typer.Option(help="Seed of the schedule.")] = 0,
    bound: Annotated[int | None, typer.Option(help="Maximum runs of --schedule exhaustive; 2000 by default.")] = None,
    max_steps: Annotated[
        int | None,
        typer.Option(help="Maximum warp instructions of a run; 200 million by default."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    to_sarif: Annotated[
        Path | None,
        typer.Option("--sarif", metavar="FILE", help="Also write the findings to this file as SARIF 2.1.0."),
    ] = None,
) -> None:
    """Emulate a kernel with all checks on. Exit code 0: no errors, maybe warnings; 1: errors; 2: invalid use.

    Example: warploom check dump/gemm.ptx --init, then warploom check dump/gemm.ptx --schedule explore
    """
    place, entry = find.split(target)
    path = Path(place)
    python = not path.is_dir() and (path.suffix == ".py" or find.is_module(place))
    if not place or not path.is_dir() and path.suffix != ".ptx" and not python:
        raise ArgumentError(
            "there is nothing to check here", expected="FILE.py, FILE.ptx, a module or a folder", got=target,
            hint=find.how_to_get_ptx(path),
        )  # fmt: skip
    if launch is not None and path.suffix != ".ptx":
        raise ArgumentError("--launch needs a PTX text", hint="a Python file has an example()")
    if init:
        _write_templates(target, path, launch, python)
        return
    options: dict[str, Any] = {"schedule": schedule, "seed": seed}
    if bound is not None:
        if schedule != "exhaustive":
            raise ArgumentError("--bound needs --schedule exhaustive", got=f"--schedule {schedule}")
        options["bound"] = bound
    if max_steps is not None:
        options["max_steps"] = max_steps
    if path.is_dir() or path.suffix == ".ptx":
        with still(f"checking {path}"):
            texts = path.is_dir()
            checked = list(check_folder(path, **options)) if texts else check_entries(path, entry, launch, **options)
    else:
        checked = list(check_python(target, options))
        path = find.file_of(place)
    _report(target, path, checked, options, as_json, to_sarif)
    if not all(one.ok for one in checked):
        raise typer.Exit(FINDINGS)


def _report(
    target: str, path: Path, checked: list[Checked], options: dict[str, Any], as_json: bool, to: Path | None
) -> None:
    """Print the findings, and write them as SARIF if requested."""
    folders = dict.fromkeys(Path(one.file).parent if one.file else path.parent for one in checked)
    sources = Sources(list(folders))
    if to is not None:
        _write(to, json.dumps(sarif.document(checked, sources), indent=1, default=plain) + "\n")
    if as_json:
        kernels = [one.as_dict() for one in checked]
        say_json({"file": str(path), "ok": all(one.ok for one in checked), **options, "kernels": kernels})
        return
    for one in checked:
        # If several folders have a file of that name, the checked one comes first.
        own = Sources([Path(one.file).parent, *folders]) if one.file else sources
        say_checked(one, own, one.file or target)
        if one.mode == "static" and one.ok:
            say(f"  to emulate it: {_how_to_emulate(one, path)}")
    if path.is_dir():
        bad = sum(not one.ok for one in checked)
        static = sum(one.mode == "static" for one in checked)
        texts = counted(len(checked), "text")
        guessed = sum(bool(one.guessed) for one in checked)
        more = f", {guessed} with launch values guessed by --init" if guessed else ""
        say(f"{texts}: {bad} with errors, {static} without a launch description{more}")
        if python := sum(one.is_file() for one in path.rglob("*.py")):
            files = f"{python} Python files are" if python != 1 else "1 Python file is"
            say(f"{files} not checked: name {'them' if python != 1 else 'it'}, as in warploom check FILE.py")


def _how_to_emulate(checked: Checked, path: Path) -> str:
    if path.is_dir():
        return f"warploom check {path} --init"
    if path.suffix == ".ptx":
        return f"warploom check {path}{'' if checked.kernel == path.name else ':' + checked.kernel} --init"
    return f"let the file's {EXAMPLE}"


def _write(path: Path, text: str) -> None:
    from ..lab.evidence import writing

    with writing(path):
        path.write_text(text, encoding="utf-8")


EXAMPLE = "example() yield (kernel, arguments, check): check gets the outputs and asserts what they must be"


def check_python(target: str, options: dict[str, Any]) -> Iterator[Checked]:
    """Check the kernels of a Python file, each with every set of arguments that an example yields."""
    place, name = find.split(target)
    module = find.load(place)
    kernels = named(module, name) if name else find.kernels_of(module)
    with find.running(place, "has an example that fails"):
        runs = list(examples(module, kernels, name))
    if name and not kernels and not runs:
        kernels = {name: _made(target, module)}
    if not kernels and not runs:
        raise ArgumentError(
            f"{place} has no kernel", expected="a module-level name that a @kernel is bound to, or an example()",
            hint=f"where functions make the kernels, let a function {EXAMPLE}; as examples/walkthrough_gemm.py has it",
        )  # fmt: skip
    run = {id(example.kernel) for example in runs}
    runs += [Example(known_as, kernel) for known_as, kernel in kernels.items() if id(kernel) not in run]
    for example in runs:
        fails = f"has a kernel `{example.name}` or an example of it that fails"
        with find.running(place, fails), still(f"checking {example.name}"):
            one = _checked(example, options)
        yield one


def without_arguments(target: str, module: ModuleType, purpose: str) -> ArgumentError:
    """The error for a target that no example has arguments for. Raises ArgumentError if it names no kernel either.

    purpose: what the arguments are needed for, such as "time".
    """
    _, name = find.split(target)
    if name and not named(module, name):
        _made(target, module)
    return ArgumentError(f"{target} has no arguments to {purpose} it with", hint=f"let the file's {EXAMPLE}")


@dataclass(frozen=True)
class Example:
    """A kernel and how to run it: arguments are None if unknown; `check` gets the outputs.

    options: of `emulate`, such as {"devices": 2}.
    """

    name: str
    kernel: Any
    arguments: Sequence[Any] | None = None
    check: Callable[..., None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def named(module: ModuleType, name: str) -> dict[str, Any]:
    """The kernel that a module's name is bound to; empty if it is anything else, such as a function that makes one."""
    found = getattr(module, name, None)
    return {name: found} if find.is_kernel(found) else {}


def examples(module: ModuleType, kernels: Mapping[str, Any], name: str = "") -> Iterator[Example]:
    """The examples of a file. Its `example()` yields (kernel, arguments, check, options), the last two optional; a
    kernel's own example yields arguments.

    With a name, only those of the kernel that is bound to it or called so, or that this function made.
    """
    of_module = getattr(module, "example", None)
    listed = _listed(of_module()) if callable(of_module) else _shipped(module)
    for item in listed:
        if not _is_example(item):
            raise ArgumentError(
                "example() yields an unexpected value", got=", ".join(_kind(part) for part in _parts(item)),
                expected='(kernel, arguments, check), then options of `emulate` such as {"devices": 2} if any',
            )  # fmt: skip
        kernel, arguments, *more = item
        check, options = more[0] if more else None, more[1] if len(more) > 1 else {}
        if not name or (kernel is kernels[name] if kernels else name in _names(kernel)):
            yield Example(getattr(kernel, "name", str(kernel)), kernel, arguments, check, options)
    for known_as, kernel in kernels.items():
        example = getattr(kernel, "example", None)
        if example is not None:
            made = example()
            for one in made if inspect.isgenerator(made) else [made]:
                yield Example(known_as, kernel, one if isinstance(one, (tuple, list)) else (one,))


def _is_example(item: Any) -> bool:
    """True if `example()` may yield this."""
    if not isinstance(item, (tuple, list)) or not 2 <= len(item) <= 4 or not find.is_kernel(item[0]):
        return False
    check, options = item[2] if len(item) > 2 else None, item[3] if len(item) > 3 else {}
    return (check is None or callable(check)) and isinstance(options, Mapping)


def _parts(item: Any) -> Sequence[Any]:
    return item if isinstance(item, (tuple, list)) else (item,)


def _kind(part: Any) -> str:
    """The part of an example in a word or two."""
    if isinstance(part, (tuple, list)):
        return counted(len(part), "argument")
    return "a function" if inspect.isfunction(part) else repr(part) if find.is_kernel(part) else type(part).__name__


def _made(target: str, module: ModuleType) -> Any:
    """The kernel that a function makes without arguments. Raises ArgumentError if it needs some."""
    try:
        return find.kernel(target, module=module)
    except ArgumentError as error:
        if "cannot be called" in error.what:
            error.hint = f"there are no arguments for it: let the file's {EXAMPLE}"
        raise


def _shipped(module: ModuleType) -> list[Any]:
    """The run of a rung of the ladder or a kernel for Blackwell, whose modules have no examples; otherwise empty."""
    from ..kernels import blackwell, ladder

    package, _, name = module.__name__.rpartition(".")
    if package == ladder.__name__ and hasattr(module, "build"):
        from ..lab import ladder_runner

        return list(ladder_runner.example(ladder.find(name)))
    if package == blackwell.__name__:
        from ..lab import blackwell_examples

        return list(blackwell_examples.example(module))
    return []


def _names(kernel: Any) -> tuple[str, ...]:
    """The names of a kernel without a module-level name: its own, and that of the function that made it."""
    maker = getattr(getattr(kernel, "function", None), "__qualname__", "").partition(".<locals>")[0]
    return getattr(kernel, "name", ""), maker


def _listed(made: Any) -> list[Any]:
    """The result of an example(): several runs, or one."""
    if made is None:
        raise ArgumentError("example() returns nothing", expected="yield (kernel, arguments, check)", got="None")
    return [made] if isinstance(made, tuple) else list(made)


def _checked(example: Example, options: dict[str, Any]) -> Checked:
    try:
        program = example.kernel.program()
    except (ArgumentError, ArgumentTypeError):
        raise
    except WarploomError as error:
        return Checked(example.name, "static", [Finding.of_error(error)])
    static = check_static(example.name, program.text, example.name)
    if not static.ok or example.arguments is None:
        return static
    return check_emulated(example.kernel, program, example.arguments, example.check, **options, **example.options)


_TO_DO = "fill in sizes, types and values, delete the line `guessed = true`, then run"


def _write_templates(target: str, path: Path, launch: Path | None, python: bool) -> None:
    """Write launch descriptions to be filled in: for a text, or for all texts below a folder that have none."""
    if python:
        raise ArgumentError("--init writes the launch description of a PTX text", hint="a Python file has an example()")
    _, entry = find.split(target)
    for text in texts_in(path) if path.is_dir() else [path]:
        try:
            programs = launch_file.programs(text, entry)
        except WarploomError as error:
            if not path.is_dir():
                raise
            say(f"{text}: {error.what}")
            continue
        if wrong := check_static(text.name, read_text(text), text.name).errors:
            errors = counted(len(wrong), "error")
            say(f"note: {text} has {errors} that no launch can mend: {wrong[0].summary}")
        for usual, program in programs.items():
            goal = launch or usual
            if not goal.exists():
                _write(goal, launch_file.template(program, text))
                say(f"wrote {goal}")
            elif path.is_dir() or len(programs) > 1:
                say(f"{goal} exists already and is unchanged")
            else:
                raise ArgumentError(
                    "the launch description exists already and is unchanged", got=str(goal),
                    hint="remove it, or write another with --launch FILE",
                )  # fmt: skip
    say(f"{_TO_DO} warploom check {target}")
