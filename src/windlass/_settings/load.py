"""Reading settings from arguments, the environment and a TOML file."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from windlass._core.limits.backoff import Backoff
from windlass._core.values.grants import Grants
from windlass._core.values.names import shown
from windlass._core.values.option_hints import suggest_option
from windlass._core.values.redaction import redacted_url
from windlass._settings.durations import parse_backoff, parse_duration
from windlass._settings.settings import Settings
from windlass.errors import ConfigError

__all__ = ["load_settings", "warn_of_other_url"]

log = logging.getLogger("windlass")

_VARIABLE = re.compile(
    r"\$\$\{|\$\{(?:(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>[^}]*))?\})?"
)


def load_settings(
    url: str | None,
    given: Mapping[str, Any],
    *,
    config: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read settings from arguments, ``WINDLASS_…`` variables and the TOML file, in this precedence.

    The file is ``config``, else ``WINDLASS_CONFIG``, else none. Its settings are at the top level
    or under ``[windlass]``. ``${NAME}`` in its texts is replaced with an environment variable, so
    that the file need not hold secrets. An unknown name raises ConfigError.
    """
    environment = os.environ if environment is None else environment
    path = config or environment.get("WINDLASS_CONFIG")
    in_file = _from_file(Path(path), environment) if path else {}
    in_environment = _from_environment(environment)
    in_call = given if url is None else {**given, "url": url}
    merged: dict[str, Any] = {**in_file, **in_environment, **in_call}
    if not merged.get("url"):
        message = (
            "Windlass needs a storage URL: Windlass('sqlite:///jobs.db'), WINDLASS_URL, or "
            "url = ... in the TOML file"
        )
        raise ConfigError(message)
    try:
        return _checked(merged)
    except ConfigError as error:
        # The reader may not know that the setting exists: say where it was found.
        sources = {name: str(path) for name in in_file}
        sources |= {name: f"WINDLASS_{name.upper()}" for name in in_environment}
        named = [
            f" {name} was read from {source}."
            for name, source in sources.items()
            if name not in in_call and re.search(rf"\b{name}\b", str(error))
        ]
        if not named:
            raise
        raise ConfigError(f"{error}.{''.join(named)}") from None


def warn_of_other_url(url: str) -> None:
    """Warn that ``WINDLASS_URL`` has no effect, because the code names another storage."""
    named = os.environ.get("WINDLASS_URL")
    if named and named != url:
        log.warning(
            "WINDLASS_URL is %s, but the code has Windlass(%r), which takes precedence. Write "
            "Windlass() in the code to use WINDLASS_URL, or unset the variable",
            redacted_url(named),
            redacted_url(url),
        )


def _from_file(path: Path, environment: Mapping[str, str]) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 -- most apps have no file

    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        message = f"cannot read the settings file {path}: {error.strerror or error}"
        raise ConfigError(message) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        message = f"{path} is no valid TOML: {error}"
        raise ConfigError(message) from error
    section = content.get("windlass", content)
    if not isinstance(section, dict):
        message = f"[windlass] in {path} must be a table"
        raise ConfigError(message)
    return {
        name: _filled(value, environment, f"{name} in {path}") for name, value in section.items()
    }


def _filled(value: Any, environment: Mapping[str, str], where: str) -> Any:
    """Replace ``${NAME}`` in texts with environment variables; ``$${`` is a literal ``${``."""
    match value:
        case str():
            return _VARIABLE.sub(lambda found: _variable(found, environment, where), value)
        case list():
            return [_filled(part, environment, where) for part in value]
        case dict():
            return {key: _filled(part, environment, where) for key, part in value.items()}
        case _:
            return value


def _variable(found: re.Match[str], environment: Mapping[str, str], where: str) -> str:
    if found[0] == "$${":
        return "${"
    name, otherwise = found["name"], found["otherwise"]
    if name is None:
        message = (
            f"{where} has a ${{ that names no variable: write ${{NAME}} or ${{NAME:-default}}, "
            f"or $${{ for the two characters themselves"
        )
        raise ConfigError(message)
    value = environment.get(name)
    if value is None and otherwise is None:
        message = (
            f"{where} needs the environment variable {name}, which is not set. Set it, or write a "
            f"default: ${{{name}:-default}}"
        )
        raise ConfigError(message)
    return (value or otherwise or "") if otherwise is not None else value or ""


_NOT_SETTINGS = frozenset({"config", "log_level", "log_format"})
"""WINDLASS_… variables that are not settings."""


def _from_environment(environment: Mapping[str, str]) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    known = set(Settings.__struct_fields__)
    for variable, value in environment.items():
        if not variable.startswith("WINDLASS_"):
            continue
        name = variable.removeprefix("WINDLASS_").lower()
        if name in _NOT_SETTINGS or name.startswith("test_"):
            continue
        if name not in known:
            message = f"{variable} is no setting.{suggest_option(name, known)}"
            raise ConfigError(message)
        if name in {"imports", "dashboard_auth"}:
            found[name] = tuple(part.strip() for part in value.split(",") if part.strip())
        else:
            found[name] = value
    return found


def _checked(merged: Mapping[str, Any]) -> Settings:
    fields = {field.name: field for field in msgspec.structs.fields(Settings)}
    checked: dict[str, Any] = {}
    for name, value in merged.items():
        field = fields.get(name)
        if field is None:
            message = f"{name!r} is no setting.{suggest_option(name, fields)}"
            raise ConfigError(message)
        if field.type in (timedelta, timedelta | None):
            missing = value is None and field.type is not timedelta
            checked[name] = None if missing else parse_duration(value, name)
            continue
        if name in _READ:
            checked[name] = _READ[name](value)
            continue
        try:
            # Not strict: numbers arrive as text from the environment.
            checked[name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError:
            # A log-in line may hold a secret: it is not repeated.
            secret = name == "dashboard_auth"
            wanted = "a list of NAME:ROLE:HASH" if secret else _wanted(field.type)
            got = "" if secret else f", got {shown(value)}"
            message = f"{name} must be {wanted}{got}"
            raise ConfigError(message) from None
    return Settings(**checked)


def _plugins(given: object) -> dict[str, Grants]:
    """Read the grants of plugins. A name alone grants nothing: the refusal says what to grant."""
    try:
        table = msgspec.json.decode(given) if isinstance(given, str) else given
        if not isinstance(table, Mapping):
            table = dict.fromkeys(msgspec.convert(table, tuple[str, ...]), Grants())
        return msgspec.convert(dict(table), dict[str, Grants])
    except msgspec.MsgspecError as error:
        message = (
            f"plugins must be a table of plugins and what they may do, such as "
            f'{{"mail": {{"tasks": true, "queues": ["mail"]}}}}, got {shown(given)}: {error}'
        )
        raise ConfigError(message) from None


def _routes(given: object) -> dict[str, str]:
    """Read patterns of task names and their queues."""
    try:
        table = msgspec.json.decode(given) if isinstance(given, str) else given
        return msgspec.convert(table, dict[str, str])
    except msgspec.MsgspecError as error:
        message = (
            f"routes must be a table of task names and queues, such as "
            f'{{"reports.*": "slow"}}, got {shown(given)}: {error}'
        )
        raise ConfigError(message) from None


def _backoff(given: object) -> Backoff | None:
    if isinstance(given, str):
        return parse_backoff(given, "backoff")
    if given is not None and not isinstance(given, Backoff):
        message = f"backoff must be a Backoff such as Backoff.fixed(5), got {shown(given)}"
        raise ConfigError(message)
    return given


_READ: Mapping[str, Callable[[object], object]] = {
    "plugins": _plugins,
    "backoff": _backoff,
    "routes": _routes,
}
"""Settings that have their own reader."""


def _wanted(kind: Any) -> str:
    """Describe the values that a setting of this type takes."""
    for part in get_args(kind):
        if get_origin(part) is Literal:  # one of these words, or nothing
            return _wanted(part)
    if get_origin(kind) is Literal:
        return " or ".join(map(repr, get_args(kind)))
    if kind is int or kind == int | None:
        return "a whole number"
    if kind is bool:
        return "true or false"
    return "text" if kind is str else "a list of module names such as ['shop.jobs']"
