"""``windlass completion``: print a script that completes commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class

from windlass._cli.options.groups import examples

__all__ = ["completion", "join_words"]

_SHELLS = ("bash", "zsh", "fish")


class _Bash(BashComplete):
    """Joins words again that bash splits at colons: every app and URL has one."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        return join_words(words), incomplete


add_completion_class(_Bash)


def join_words(parts: list[str]) -> list[str]:
    """Join ``shop : app`` to ``shop:app``."""
    words: list[str] = []
    open_end = False
    for part in parts:
        if words and (open_end or part == ":"):
            words[-1] += part
        else:
            words.append(part)
        open_end = part == ":"
    return words


@click.command(
    epilog=examples(
        "windlass completion bash > ~/.local/share/bash-completion/completions/windlass",
        "windlass completion zsh > ~/.zfunc/_windlass      # with ~/.zfunc in fpath",
        "windlass completion fish > ~/.config/fish/completions/windlass.fish",
    )
)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> int:
    """Print a completion script for your shell.

    It completes commands and options. It also completes the names of queues, tasks, workers, limits
    and schedules if their storage answers within about a second.
    """
    from windlass._cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        message = f"this release of click does not know {shell}: upgrade it"
        raise click.ClickException(message)
    click.echo(kind(cli, {}, "windlass", "_WINDLASS_COMPLETE").source())
    return 0
