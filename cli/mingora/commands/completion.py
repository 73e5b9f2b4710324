"""completion: a script by which a shell completes commands and options, made from the parser itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from mingora.commands.context import Command, Context
from mingora.i18n import _

SHELLS = ("bash", "zsh", "fish")

_BASH = """\
_mingora() {
    local current="${COMP_WORDS[COMP_CWORD]}" command="" word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$word" in -*) ;; *) command="$command $word" ;; esac
    done
    local words
    case "$command" in
%s
        *) COMPREPLY=(); return ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _mingora mingora
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help=_("whose script to print"))


def _completion(args: argparse.Namespace, context: Context) -> int:
    from mingora.cli import parser

    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    script = makers[args.shell](list(_tree(parser(), "")))
    context.out.emit({"shell": args.shell, "script": script}, script.rstrip("\n"))
    return 0


def _tree(parser: argparse.ArgumentParser, path: str) -> Iterator[tuple[str, list[str], bool]]:
    """Every command's path, the words that may follow it, and whether those are commands of its own."""
    words: list[str] = []
    children: list[tuple[str, argparse.ArgumentParser]] = []
    for action in parser._actions:  # argparse offers no other way to read a parser
        words += [option for option in action.option_strings if option.startswith("--")]
        if isinstance(action, argparse._SubParsersAction):
            children = list(action.choices.items())
        elif action.choices and not action.option_strings:
            words += [str(choice) for choice in action.choices]
    yield path, [name for name, _parser in children] + words, bool(children)
    for name, child in children:
        yield from _tree(child, f"{path} {name}")


def _bash(tree: list[tuple[str, list[str], bool]]) -> str:
    # What follows a command's last word (a job, a folder) keeps that command's options.
    cases = [
        f'        "{path}"{"" if has_children else f"|{chr(34)}{path} {chr(34)}*"}) words="{" ".join(words)}" ;;'
        for path, words, has_children in tree
    ]
    return _BASH % "\n".join(cases)


def _zsh(tree: list[tuple[str, list[str], bool]]) -> str:
    return "#compdef mingora\nautoload -U +X bashcompinit && bashcompinit\n" + _bash(tree)


def _fish(tree: list[tuple[str, list[str], bool]]) -> str:
    lines = []
    for path, words, _has_children in tree:
        names = path.split()
        where = " && ".join(f"__fish_seen_subcommand_from {name}" for name in names) or "__fish_use_subcommand"
        for word in words:
            kind = f"-l {word[2:]}" if word.startswith("--") else f"-f -a {word}"
            lines.append(f"complete -c mingora -n '{where}' {kind}")
    return "\n".join(lines) + "\n"


COMMANDS = (Command("completion", lambda: _("print a completion script for a shell"), _completion, _arguments),)
