"""Asking before an action is carried out."""

from __future__ import annotations

import sys

import click

__all__ = ["confirm"]


def confirm(question: str) -> None:
    """Ask on standard error. Abort if the answer is no, or if nobody can answer."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin is None or not sys.stdin.isatty():
            click.echo("\nError: there is no terminal to ask on: give --yes.", err=True)
        raise
    if not agreed:
        raise click.Abort
