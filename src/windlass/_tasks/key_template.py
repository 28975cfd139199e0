"""Templates that name arguments, such as ``"{tenant_id}"``: checked once, filled for every call."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from windlass._core.values.names import check_text, shown
from windlass._core.values.redaction import looks_secret
from windlass.errors import DefinitionError, InvalidArgument, suggestion

__all__ = ["KeyTemplate", "TemplatePart", "check_argument", "parse_template", "value_at_path"]

_DIGITS = 20
_PATH = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
TemplatePart = tuple[str, tuple[str, ...]]
"""Literal text, and the path to the value after it. None: the template ends here."""


class KeyTemplate:
    """A key made of arguments."""

    __slots__ = ("_parts", "_several", "_what", "reads_job")

    def __init__(
        self,
        template: str,
        what: str,
        arguments: Collection[str],
        task: str,
        attributes: Collection[str] = (),
    ) -> None:
        """Parse the template. Refuses names that are neither arguments of ``task`` nor
        ``attributes`` of its jobs. An argument takes precedence over an attribute of the same name.
        """
        self._what = what
        self._parts = parse_template(template, what, "tenant_id")
        own = [path for _, path in self._parts if path and path[0] not in arguments]
        for path in own:
            if len(path) > 1 or path[0] not in attributes:
                check_argument(path[:1], arguments, what, task, attributes)
        self.reads_job: bool = bool(own)
        self._several = "".join(text for text, _ in self._parts) if len(self._parts) > 1 else ""

    def fill(self, arguments: Mapping[str, Any], secrets: Collection[str] = ()) -> str:
        """Fill in the key of a call. Of a secret it holds a digest, which
        `windlass._core.values.hidden_keys` hides.
        """
        key = "".join(
            text + self._told_apart(self._value(path, arguments, secrets)) if path else text
            for text, path in self._parts
        )
        return check_text(key, self._what)

    def _value(
        self, path: tuple[str, ...], arguments: Mapping[str, Any], secrets: Collection[str]
    ) -> str:
        value = _text(value_at_path(path, arguments, self._what), self._what)
        if value and any(part in secrets or looks_secret(part) for part in path):
            return f"secret:{hashlib.sha256(value.encode()).hexdigest()[:_DIGITS]}"
        return value

    def _told_apart(self, value: str) -> str:
        """Escape a value, so that "a-b", "c" and "a", "b-c" give different keys."""
        if not self._several:
            return value
        marks = {"\\", *self._several}
        return "".join(f"\\{letter}" if letter in marks else letter for letter in value)


def parse_template(template: object, what: str, example: str) -> list[TemplatePart]:
    """Split a template into parts. Refuses one that names no argument or cannot be read back."""
    try:
        parts = list(string.Formatter().parse(template)) if isinstance(template, str) else []
    except ValueError:
        parts = []
    paths = [field for _, field, *_ in parts if field is not None]
    plain = all(not spec and not conversion for _, _, spec, conversion in parts)
    apart = all(text for text, field, *_ in parts[1:] if field is not None)
    if not paths or not plain or not apart or not all(_PATH.fullmatch(path) for path in paths):
        message = (
            f'{what} names arguments in braces, as in "{{{example}}}" or "{{order.{example}}}", '
            f"with something between two of them; got {shown(template)}"
        )
        raise InvalidArgument(message)
    return [(text, tuple(field.split(".")) if field else ()) for text, field, *_ in parts]


def check_argument(
    wanted: Iterable[str],
    arguments: Collection[str],
    what: str,
    task: str,
    attributes: Collection[str] = (),
) -> None:
    """Refuse names that are no arguments of ``task``. ``attributes``: names allowed as well."""
    for name in wanted:
        if name not in arguments:
            has = f"It has {', '.join(arguments)}." if arguments else "It has none."
            also = f" {', '.join(attributes)} of the job can be named, too." if attributes else ""
            message = (
                f"{what} names {name!r}, which is no argument of task {task!r}. {has}"
                f"{suggestion(name, arguments) or suggestion(name, attributes)} Name one of them, "
                f"or add the argument.{also}"
            )
            raise DefinitionError(message)


def value_at_path(path: tuple[str, ...], arguments: Mapping[str, Any], what: str) -> Any:
    """Return the value at the end of a path."""
    value: Any = arguments[path[0]]
    for part in path[1:]:
        if value is None:
            return None
        try:
            value = value[part] if isinstance(value, Mapping) else getattr(value, part)
        except (KeyError, AttributeError):
            message = f"{what} is {'.'.join(path)}, and this call has no such part: {shown(value)}"
            raise InvalidArgument(message) from None
    return value


def _text(value: object, what: str) -> str:
    """Write a value as it is stored: a UUID, a date or an enum member is text in the payload."""
    try:
        stored = msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        stored = ()
    match stored:
        case None:
            return ""
        case str():
            return stored
        case bool():
            return "true" if stored else "false"
        case int():
            return str(stored)
        case _:
            message = (
                f"{what} must be text, a whole number, or what is stored as one, got {shown(value)}"
            )
            raise InvalidArgument(message)
