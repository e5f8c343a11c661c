"""`weft completion`: scripts that let a shell complete commands, options and their values.

shtab writes the scripts from the commands' own parsers, so they know what the commands know.
"""

from __future__ import annotations

import argparse

HELP = "Print a completion script for your shell"
EXAMPLES = """
source <(weft completion bash)                                      bash, this session
weft completion bash > ~/.local/share/bash-completion/completions/weft
weft completion zsh > ~/.zfunc/_weft                                zsh, with fpath+=~/.zfunc
weft completion fish > ~/.config/fish/completions/weft.fish
"""
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="which shell")


def run(args: argparse.Namespace) -> int:
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The completion script for a shell."""
    import shtab

    return shtab.complete(whole_parser(), shell)


def whole_parser() -> argparse.ArgumentParser:
    """One parser of all commands, with what shtab needs to know of paths."""
    import shtab

    from weft.cli.main import COMMANDS, module_of
    from weft.cli.parser import Parser, actions_of, add_actions

    parser = Parser(prog="weft", description="Decentralised topic-based publish/subscribe.")
    parser.add_argument("-V", "--version", action="store_true", help="print the version")
    add_actions(parser, "", {name: module_of(name) for name in COMMANDS})
    [commands] = actions_of(parser)
    commands.add_parser("help", help="Explain a command").add_argument("command", choices=COMMANDS)
    waiting: list[argparse.ArgumentParser] = [*commands.choices.values()]
    while waiting:
        each = waiting.pop()
        for nested in actions_of(each):
            waiting += nested.choices.values()
        for action in each._actions:
            if action.metavar in ("DIR", "FILE", "LAKE"):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return parser
