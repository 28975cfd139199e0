"""``python -m tests.architecture.prose docs/guides/limits.md``: what the gate says about pages.

``help``, ``templates`` and ``docstrings`` name the other texts. Without arguments it reads all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from tests.architecture.prose.measure import measure
from tests.architecture.prose.texts import DOORS, every_page


def main(names: Iterable[str]) -> int:
    wanted = [name.removeprefix("./") for name in names]
    failed = 0
    for page in every_page():
        group = "docstrings" if page.name in DOORS else page.name
        if wanted and page.name not in wanted and group not in wanted:
            continue
        found = measure(page)
        failed += bool(found.problems)
        click.echo(
            f"{found.name}: {found.words} words, {len(found.listed)} listed, "
            f"{len(found.long)} of {found.sentences} sentences long"
        )
        for problem in found.problems:
            click.echo(f"  {problem}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
