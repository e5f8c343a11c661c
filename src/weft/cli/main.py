"""The command line: finds the command, reads its arguments, runs it, and says what went wrong.

Each command is a module of this package with `HELP` (one line), `add_arguments(parser)` and
`run(args) -> int`. It may have `DETAILS` and `EXAMPLES` for its help page, `check(args)` for what
its parser cannot judge, and `PASSES_ON` if another program reads its arguments (as `args.rest`). A
command imports what it needs inside `run`, so that help and completion are quick.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted; 3 means that 'data ingest' met more
bad rows than --rejects-max allows.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from types import ModuleType

import weft
from weft.cli.problem import FAILED, INTERRUPTED, USAGE, Problem, did_you_mean
from weft.terminal import printable

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Running peers", ("peer", "pub", "sub", "status", "topics", "swarm", "web")),
    ("Seeing it work", ("demo", "sim", "bench", "lab", "versus", "size")),
    ("Events that stay", ("history", "topic", "get", "export", "import")),
    ("Your data", ("data", "sql", "trace", "spark", "cluster")),
    ("Working on weft", ("test", "check", "docs")),
    ("This tool", ("config", "completion")),
)
COMMANDS = tuple(name for _, names in GROUPS for name in names)


def module_of(command: str) -> ModuleType:
    """The module that implements a command; `import` is a word of Python's own, so its module has
    another name."""
    return import_module(f"weft.cli.{'import_' if command == 'import' else command}")


def overview() -> str:
    """What `weft --help` prints."""
    lines = ["usage: weft COMMAND [ARGUMENTS]", ""]
    lines += ["Decentralised topic-based publish/subscribe.", ""]
    for title, names in GROUPS:
        lines.append(f"{title}:")
        lines += [f"  {name:<11} {module_of(name).HELP}" for name in names]
        lines.append("")
    lines.append("'weft COMMAND --help' explains a command and gives examples.")
    lines.append("'weft --version' prints the version.")
    return "\n".join(lines)


def dispatch(arguments: Sequence[str]) -> int:
    """Run one command line."""
    if not arguments:
        print(overview(), file=sys.stderr)
        return USAGE
    command, rest = arguments[0], list(arguments[1:])
    if command == "help":
        command, rest = (rest[0], ["--help"]) if rest else ("--help", [])
    if command in ("-h", "--help"):
        print(overview())
        return 0
    if command in ("-V", "--version"):
        print(f"weft {weft.__version__}")
        return 0
    if command not in COMMANDS:
        raise _no_command(command)
    module = module_of(command)
    args = read(command, module, rest)
    if hasattr(args, "log_level"):
        logging.basicConfig(format="weft: %(levelname)s: %(message)s")
        logging.getLogger("weft").setLevel(args.log_level.upper())
    code: int = module.run(args)
    return code


def read(command: str, module: ModuleType, rest: Sequence[str]) -> argparse.Namespace:
    """The arguments of a command; a wrong one ends the program with a message."""
    from weft.cli.parser import parser_for

    parser = parser_for(command, module)
    if getattr(module, "PASSES_ON", False) and rest not in (["-h"], ["--help"]):
        return argparse.Namespace(rest=list(rest))
    args = parser.parse_args(rest)
    if hasattr(module, "check"):  # needs no further package
        module.check(args)
    return args


def check(arguments: Sequence[str]) -> int:
    """Only read a command line, as far as that is possible with the packages that are there."""
    command, rest = arguments[0], arguments[1:]
    if command in COMMANDS:
        with suppress(ModuleNotFoundError):
            read(command, module_of(command), rest)
    elif not command.startswith("-"):
        raise _no_command(command)
    return 0


def _no_command(name: str) -> Problem:
    hint = did_you_mean(name, COMMANDS)
    return Problem(f"there is no command {name!r}{hint}\nSee 'weft --help'.", USAGE)


def extras_for(arguments: Sequence[str], package: str) -> str:
    """The extras that a command line needs, all at once; if it needs none, the extra that a package
    belongs to."""
    from weft.cli.bootstrap import groups_for

    return ",".join(group for group in groups_for(arguments) if group != "core") or extra_of(
        package
    )


def extra_of(package: str) -> str:
    """The extra that a package belongs to; "all" if that is not known."""
    from importlib import metadata

    names = {package, *metadata.packages_distributions().get(package, ())}
    wanted = {name.replace("_", "-").lower() for name in names}
    try:
        lines = metadata.requires("weft") or []
    except metadata.PackageNotFoundError:
        return "all"
    for line in lines:
        found = re.fullmatch(r"([\w.-]+).*;.*extra\s*==\s*['\"](\w+)['\"]", line)
        if found is None or found[2] in ("all", "dev"):
            continue
        if found[1].replace("_", "-").lower() in wanted:
            return found[2]
    return "all"


def explain(error: Exception, arguments: Sequence[str]) -> Problem | None:
    """An error as a message that helps its user; None for a defect of weft."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, ModuleNotFoundError) and error.name:
        package = error.name.partition(".")[0]
        if package != "weft":
            return Problem(
                f"this needs the package {package!r}, which is not installed here.\n"
                "./weft in a checkout installs it; otherwise: "
                f"pip install 'weft[{extras_for(arguments, package)}]'"
            )
    from weft.errors import WeftError
    from weft.ids import BadId
    from weft.net.errors import ConfigError, UsageError

    if isinstance(error, BadId | ConfigError | UsageError):
        return Problem(str(error), USAGE)
    if isinstance(error, WeftError):
        return Problem(str(error))
    if isinstance(error, OSError) and error.filename is not None:
        return Problem(f"{error.filename}: {error.strerror}")
    return None


def main(argv: Sequence[str] | None = None, run: Callable[[Sequence[str]], int] = dispatch) -> int:
    """Run the command line, or with `check` only read it; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        return run(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has seen enough. Point stdout elsewhere, because the interpreter
        # flushes it once more when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:
        problem = explain(error, arguments)
        if problem is None:
            raise
        for line in str(problem).splitlines():
            print(f"weft: {printable(line)}", file=sys.stderr)
        return problem.code


if __name__ == "__main__":
    sys.exit(main())
