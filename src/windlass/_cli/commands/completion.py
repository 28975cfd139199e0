"""``windlass completion``: what a shell needs to complete commands, options and names."""

from __future__ import annotations

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class

__all__ = ["completion", "join_words"]

_SHELLS = ("bash", "zsh", "fish")


class _Bash(BashComplete):
    """Bash takes words apart at colons, and every app and URL has one."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, incomplete = super().get_completion_args()
        return join_words(words), incomplete


add_completion_class(_Bash)


def join_words(parts: list[str]) -> list[str]:
    """``shop : app`` is ``shop:app`` again."""
    words: list[str] = []
    open_end = False
    for part in parts:
        if words and (open_end or part == ":"):
            words[-1] += part
        else:
            words.append(part)
        open_end = part == ":"
    return words


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> int:
    """Print the script that teaches a shell to complete `windlass`.

    \b
    bash   windlass completion bash > ~/.local/share/bash-completion/completions/windlass
    zsh    windlass completion zsh > ~/.zfunc/_windlass      with ~/.zfunc in fpath
    fish   windlass completion fish > ~/.config/fish/completions/windlass.fish

    Names of queues, tasks, workers, limits and schedules come from the app or the --url on the
    line, or from WINDLASS_URL, if it answers within a second or so.
    """  # noqa: D301 -- click's mark for lines that stay as they are
    from windlass._cli.main import cli

    kind = get_completion_class(shell)
    if kind is None:
        message = f"this release of click does not know {shell}: upgrade it"
        raise click.ClickException(message)
    click.echo(kind(cli, {}, "windlass", "_WINDLASS_COMPLETE").source())
    return 0
