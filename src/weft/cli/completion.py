"""`weft completion`: scripts that let a shell complete commands, options and their values.

The scripts are written from the commands' own parsers, so they know what the commands know.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, field

HELP = "Print a completion script for your shell"
EXAMPLES = """
source <(weft completion bash)                                      bash, this session
weft completion bash > ~/.local/share/bash-completion/completions/weft
weft completion zsh > ~/.zfunc/_weft                                zsh, with fpath+=~/.zfunc
weft completion fish > ~/.config/fish/completions/weft.fish
"""


@dataclass(frozen=True)
class Option:
    """One option of a command, or one positional argument (without names)."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...] = ()
    path: bool = False  # a file or folder


@dataclass(frozen=True)
class Command:
    name: str
    help: str
    options: list[Option] = field(default_factory=list)

    def values(self) -> Iterator[str]:
        """What the positional arguments may be, where that is a short list."""
        for option in self.options:
            if not option.names:
                yield from option.choices


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(WRITERS), help="which shell")


def run(args: argparse.Namespace) -> int:
    print(WRITERS[args.shell](commands()))
    return 0


def commands() -> list[Command]:
    """All commands with their options, read from their parsers."""
    from weft.cli.main import COMMANDS, module_of
    from weft.cli.parser import actions_of, parser_for

    found = []
    for name in COMMANDS:
        module = module_of(name)
        parser = parser_for(name, module)
        nested = [each for actions in actions_of(parser) for each in actions.choices.values()]
        options = [_option(action) for each in (parser, *nested) for action in each._actions]
        found.append(Command(name, module.HELP, list(dict.fromkeys(options))))
    return found


def _option(action: argparse.Action) -> Option:
    choices = tuple(str(choice) for choice in action.choices or ())
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return Option(
        names=tuple(action.option_strings),
        help=(action.help or "").replace("%%", "%").partition(" (")[0],
        takes_value=action.nargs != 0,
        choices=choices,
        path=metavar in ("DIR", "FILE"),
    )


# --- bash -------------------------------------------------------------------------------------


def bash(found: list[Command]) -> str:
    names = " ".join(command.name for command in found)
    lines = [
        "# bash completion for weft",
        "_weft() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        "    COMPREPLY=()",
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f'        COMPREPLY=($(compgen -W "{names} help --help --version" -- "$word"))',
        "        return",
        "    fi",
        '    case "${COMP_WORDS[1]}:$before" in',
    ]
    for command in found:
        for option in command.options:
            if option.names and option.takes_value:
                patterns = "|".join(f"{command.name}:{name}" for name in option.names)
                lines.append(f"        {patterns}) {_bash_value(option)}; return ;;")
    lines += ["    esac", '    case "${COMP_WORDS[1]}" in']
    for command in found:
        options = [name for option in command.options for name in option.names]
        words = " ".join([*options, *command.values()])
        lines.append(f'        {command.name}) COMPREPLY=($(compgen -W "{words}" -- "$word")) ;;')
    lines.append(f'        help) COMPREPLY=($(compgen -W "{names}" -- "$word")) ;;')
    lines += ["    esac", "}", "complete -o default -F _weft weft ./weft"]
    return "\n".join(lines)


def _bash_value(option: Option) -> str:
    if option.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$word"))'
    if option.path:
        return 'COMPREPLY=($(compgen -f -- "$word"))'
    return "COMPREPLY=()"


# --- zsh --------------------------------------------------------------------------------------


def zsh(found: list[Command]) -> str:
    lines = ["#compdef weft", "_weft() {", "    local -a commands", "    commands=("]
    lines += [f"        '{command.name}:{_quoted(command.help)}'" for command in found]
    lines += [
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        return",
        "    fi",
        "    local command=$words[2]",
        "    shift words; (( CURRENT-- ))",
        "    case $command in",
    ]
    for command in found:
        specs = [spec for option in command.options for spec in _zsh_specs(option)]
        lines.append(f"        {command.name}) _arguments {' '.join(specs)} ;;")
    lines += [
        "        help) _describe command commands ;;",
        "    esac",
        "}",
        'if [ "$funcstack[1]" = "_weft" ]; then _weft "$@"; else compdef _weft weft; fi',
    ]
    return "\n".join(lines)


def _zsh_specs(option: Option) -> Iterator[str]:
    value = ""
    if option.choices:
        value = f":value:({' '.join(option.choices)})"
    elif option.path:
        value = ":path:_files"
    elif option.takes_value:
        value = ":value:"
    if not option.names:
        if option.choices:
            yield f"'1{value}'"
        return
    for name in option.names:
        yield f"'{name}[{_quoted(option.help)}]{value}'"


def _quoted(text: str) -> str:
    """Text inside single quotes and square brackets."""
    return text.replace("'", "'\\''").replace("[", "(").replace("]", ")").replace(":", " -")


# --- fish -------------------------------------------------------------------------------------


def fish(found: list[Command]) -> str:
    lines = ["# fish completion for weft", "complete -c weft -f"]
    lines += [
        f"complete -c weft -n __fish_use_subcommand -a {command.name} "
        f"-d '{_fish_quoted(command.help)}'"
        for command in found
    ]
    for command in found:
        here = f"complete -c weft -n '__fish_seen_subcommand_from {command.name}'"
        for option in command.options:
            lines += [f"{here} {part}" for part in _fish_parts(option)]
    return "\n".join(lines)


def _fish_parts(option: Option) -> Iterator[str]:
    if not option.names:
        if option.choices:
            yield f"-a '{' '.join(option.choices)}'"
        return
    names = " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names
    )
    value = ""
    if option.choices:
        value = f" -x -a '{' '.join(option.choices)}'"
    elif option.path:
        value = " -r -F"
    elif option.takes_value:
        value = " -x"
    yield f"{names} -d '{_fish_quoted(option.help)}'{value}"


def _fish_quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")


WRITERS = {"bash": bash, "zsh": zsh, "fish": fish}
