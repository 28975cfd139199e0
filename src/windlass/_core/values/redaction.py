"""Redaction: secrets among arguments, and in texts where they appear again.

Three things make a value a secret: its argument is annotated ``Secret[...]``, its name sounds like
one (``password``, ``api_key``), or it looks like one in any place (a JWT, an AWS key, the password
of a URL). The stored payload keeps what the handler needs. Texts for people, logs and errors go
through here first.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from windlass._core.job.job import Attempt, AttemptError, JobRecord, LimitUse, Progress
from windlass._core.values.hidden_keys import map_around_digests, mask_digests
from windlass._core.values.hidden_values import HiddenValues, mask_values

__all__ = [
    "MASK",
    "looks_secret",
    "redacted_error",
    "redacted_history",
    "redacted_job",
    "redacted_json",
    "redacted_text",
    "redacted_url",
    "redacted_value",
    "secret_names",
    "secret_tags",
    "secret_tags_in",
    "secret_values",
    "suspicious_words_in",
]

MASK = "***"

# --- which arguments ------------------------------------------------------------------------------

_TAG = "secret:"
"""Jobs carry the names of their secret arguments as tags, as they carry the schedule that made
them. A reader of a job may not have its task, and every release and backend already stores, copies
and shows tags.
"""

_NAME = re.compile(
    r"passw|passphrase|passcode|secret(?!ar)|token|authorization|cookie|credential|credit"
    r"|(api|access|private|signing|encryption)_?key"
    r"|(^|_)(pwd|ssn|cvv|cvc|otp|jwt|dsn)(_|$)|(^|_)pass_(word|phrase|code)"
)
_COUNTED = re.compile(r"(tokens|credits)(_|$)")
"""Numbers under such names are counted, not kept secret: ``max_tokens``."""
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def secret_tags(names: Iterable[str]) -> tuple[str, ...]:
    """Return the tags of a job whose arguments of these names are secret."""
    return tuple(_TAG + name for name in names)


def secret_tags_in(tags: Iterable[str]) -> tuple[str, ...]:
    """Return those of a job's tags that name secret arguments: what follows from it
    inherits them.
    """
    return tuple(tag for tag in tags if tag.startswith(_TAG))


def secret_names(tags: Iterable[str]) -> frozenset[str]:
    """Return the names of a job's secret arguments."""
    return frozenset(tag.removeprefix(_TAG) for tag in tags if tag.startswith(_TAG))


def looks_secret(name: str) -> bool:
    """Return whether an argument of this name is one by its sound."""
    return _sounds_secret(name) if len(name) <= _REMEMBERED else _sounds(name)


def _sounds(name: str) -> bool:
    return _NAME.search(_snake(name)) is not None


_REMEMBERED = 64
"""Characters of a name that is worth remembering: the same few stand in every row of a payload."""
_sounds_secret = functools.lru_cache(maxsize=1024)(_sounds)


def _snake(name: str) -> str:
    return _HUMP.sub("_", name).replace("-", "_").lower()


def _hides(name: str, value: object, names: Collection[str]) -> bool:
    if name in names:
        return True
    if value is None or isinstance(value, bool) or not looks_secret(name):
        return False
    counted = isinstance(value, int | float) and _COUNTED.search(_snake(name)) is not None
    return not counted


# --- text -----------------------------------------------------------------------------------------

_WORD = (
    r"passw(?:or)?d|passphrase|secret|token|authorization|cookie|credential"
    r"|(?:api|access|private|signing|encryption)[_-]?key"
)
_URL = re.compile(
    r"\b([a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^\s/?#:@\"'<>]{0,200}:)([^\s/\"'<>]{1,500})@"
)
_VALUES = re.compile(
    r"\beyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,8192}\.[A-Za-z0-9_-]{0,4096}"  # JWT
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"  # AWS
    r"|\bgh[pousr]_[A-Za-z0-9]{30,255}\b|\bgithub_pat_[A-Za-z0-9_]{30,255}\b"
    r"|\bxox[abeprs]-[A-Za-z0-9-]{10,255}"  # Slack
    r"|\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,255}\b"  # Stripe
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[\s\S]{1,10000}?-----END [A-Z ]{0,30}PRIVATE KEY-----"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic) (?=[^\s\"']{0,500}[0-9])[A-Za-z0-9._~+/=-]{8,2000}")
_ASSIGNED = re.compile(
    rf"(?i)((?:{_WORD})[\w-]{{0,32}}[\"']?\s?[=:]\s?)([\"'])(?:(?!\2)[^\n]){{1,1000}}\2"
)
_PARAMETER = re.compile(rf"(?i)((?:{_WORD})[\w-]{{0,32}}=)(?![\"'])[^\s,;&'\")\]}}]{{1,1000}}")
_SUSPECTS = (
    *("://", "eyj", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox"),
    *("sk_", "rk_", "-----begin", "bearer ", "basic ", "passw", "passphrase", "secret", "token"),
    *("authorization", "cookie", "credential", "apikey", "accesskey", "privatekey", "signingkey"),
    *("encryptionkey", "_key", "-key", "arguments:"),
    "\u017f",  # an s if case is ignored
)
"""Most texts hold nothing of the kind: looking for these is a hundred times quicker."""


def redacted_text(text: str, values: Sequence[str] = ()) -> str:
    """``text`` without these values, and without what looks like a secret by itself, such as the
    digest of secret arguments that is part of a key.
    """
    if "secret:" in text or "arguments:" in text:
        text = mask_digests(text, "")  # first: a digest that lost a few digits would stay
    if isinstance(values, HiddenValues):
        text = values.out_of(text, MASK)
    else:
        text = mask_values(text, values, MASK)
    low = text.lower()
    if not any(suspect in low for suspect in _SUSPECTS):
        return text
    text = _URL.sub(rf"\1{MASK}@", text)
    text = _VALUES.sub(MASK, text)
    text = _BEARER.sub(rf"\1 {MASK}", text)
    text = _ASSIGNED.sub(rf"\1\2{MASK}\2", text)
    return _PARAMETER.sub(rf"\1{MASK}", text)


_LOGIN = re.compile(r"^([a-zA-Z][a-zA-Z0-9+.-]*://[^:@/]*:).*@", re.DOTALL)


def redacted_url(url: str) -> str:
    """Return the URL of a storage without its password, also if it contains an unescaped slash. A
    text that is no URL loses everything before an @.
    """
    if "://" not in url:
        _, at, rest = url.rpartition("@")
        return f"{MASK}@{rest}" if at else redacted_text(url)
    return redacted_text(_LOGIN.sub(rf"\g<1>{MASK}@", url))


def redacted_error(error: AttemptError, values: Sequence[str] = ()) -> AttemptError:
    """Return an error whose texts do not give away what its handler was given."""
    message = redacted_text(error.message, values)
    traceback = redacted_text(error.traceback, values)
    if message == error.message and traceback == error.traceback:
        return error
    return AttemptError(error.kind, message, traceback)


# --- arguments ------------------------------------------------------------------------------------

_BROKEN = (msgspec.MsgspecError, ValueError, RecursionError)
_TRACES = (
    *(suspect.encode() for suspect in _SUSPECTS if "key" not in suspect),
    *(b"key", b"pass_", b"pass-", b"passcode", b"credit", b"pwd", b"ssn", b"cvv", b"cvc"),
    *(b"otp", b"jwt", b"dsn"),
    # Any of these may be written in another way; the last is a K that lowers to k.
    *(b"\\u", b"\\/", "\u212a".encode()),
)
"""Without one of these in it, JSON has nothing to hide. Large payloads are read whole only if they
may: a list of jobs with a megabyte each would else keep a page waiting for a minute."""
_SHORTEST = 4
"""Characters: hiding every ``a`` of a text would hide the text."""


def suspicious_words_in(low: bytes) -> list[bytes]:
    """Return the words of a JSON text, in lower case, that may hide a secret though nothing is
    marked.
    """
    return [trace for trace in _TRACES if trace in low]


def _innocent(payload: bytes) -> bool:
    low = payload.lower()
    return not any(trace in low for trace in _TRACES)


def redacted_json(payload: bytes, names: Collection[str] = (), values: Sequence[str] = ()) -> bytes:
    """Arguments, or a result, with its secrets masked at any depth. The same bytes if there are
    none; what is no JSON is taken for text.
    """
    if not names and not values and _innocent(payload):
        return payload
    try:
        found = msgspec.json.decode(payload)
        masked = _masked(found, names, values)
        return payload if masked == found else msgspec.json.encode(masked)
    except _BROKEN:
        text = payload.decode("utf-8", "replace")
        hidden = redacted_text(text, values)
        return payload if hidden == text else hidden.encode()


def redacted_value(value: Any, values: Sequence[str] = ()) -> Any:
    """Plain values, such as the fields of a structured log line, with secrets masked."""
    return _masked(value, (), values)


def _masked(value: Any, names: Collection[str], values: Sequence[str]) -> Any:
    match value:
        case str():
            return redacted_text(value, values)
        case dict():
            return {
                redacted_text(name, values): (
                    MASK if _hides(name, part, names) else _masked(part, names, values)
                )
                for name, part in value.items()
            }
        case list():
            return [_masked(part, names, values) for part in value]
        case int() | float() if not isinstance(value, bool) and str(value) in values:
            return MASK
        case _:
            return value


def secret_values(payload: bytes, names: Collection[str] = ()) -> tuple[str, ...]:
    """Return the texts that must not appear elsewhere: values under a secret name, and the
    passwords of URLs; the longest first, also in quoted form.
    """
    if not names and _innocent(payload):
        return ()
    try:
        found = set(_hidden(msgspec.json.decode(payload), names))
    except _BROKEN:
        return ()
    return HiddenValues(sorted({*_ways(found)}, key=lambda value: (-len(value), value)))


def _hidden(value: Any, names: Collection[str]) -> Iterator[str]:
    match value:
        case dict():
            for name, part in value.items():
                if _hides(name, part, names):
                    yield from _leaves(part)
                else:
                    yield from _hidden(part, names)
        case list():
            for part in value:
                yield from _hidden(part, names)
        case str() if "://" in value:
            yield from (found[2] for found in _URL.finditer(value) if len(found[2]) >= _SHORTEST)


def _leaves(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for part in value.values():
                yield from _leaves(part)
        case list():
            for part in value:
                yield from _leaves(part)
        case bool() | None:
            return
        case _:
            text = str(value)
            if len(text.strip()) >= _SHORTEST:
                yield text


def _ways(values: Iterable[str]) -> Iterator[str]:
    """Yield each of them as it is, and as Python, JSON and URLs write it."""
    for value in values:
        yield value
        yield repr(value)[1:-1]
        yield msgspec.json.encode(value).decode()[1:-1]
        yield quote(value, safe="")
        yield unquote(value)


# --- jobs -----------------------------------------------------------------------------------------


def redacted_job(job: JobRecord) -> JobRecord:
    """Return a job as people may see it: arguments, result, errors and every text made of them."""
    names = secret_names(job.tags)
    innocent = not names and _innocent(job.payload)  # looked at once: it may be large
    values = () if innocent else secret_values(job.payload, names)
    progress = job.progress
    return msgspec.structs.replace(
        job,
        payload=job.payload if innocent else redacted_json(job.payload, names, values),
        result=None if job.result is None else redacted_json(job.result, names, values),
        error=None if job.error is None else redacted_error(job.error, values),
        key=None if job.key is None else _redacted_key(job.key, values),
        limits=tuple(_redacted_use(use, values) for use in job.limits),
        reason=_told(job.reason, values),
        progress=None if progress is None else _redacted_progress(progress, names, values),
        metadata=job.metadata and _masked(job.metadata, names, values),
        principal=_told(job.principal, values),
        correlation_id=_told(job.correlation_id, values),
        tags=tuple(redacted_text(tag, values) for tag in job.tags),
    )


def _redacted_progress(
    progress: Progress, names: Collection[str], values: Sequence[str]
) -> Progress:
    data = progress.data and _masked(progress.data, names, values)
    return Progress(progress.fraction, redacted_text(progress.note, values), data)


def redacted_history(job: JobRecord, attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the ended claims of ``job``, which is the whole one: the values to hide
    are its own.
    """
    names = secret_names(job.tags)
    values = secret_values(job.payload, names)
    return [
        attempt
        if attempt.error is None and attempt.metadata is None
        else msgspec.structs.replace(
            attempt,
            error=None if attempt.error is None else redacted_error(attempt.error, values),
            metadata=attempt.metadata and _masked(attempt.metadata, names, values),
        )
        for attempt in attempts
    ]


def _redacted_use(use: LimitUse, values: Sequence[str]) -> LimitUse:
    hidden = _redacted_key(use.key, values)
    return use if hidden == use.key else msgspec.structs.replace(use, key=hidden)


def _redacted_key(key: str, values: Sequence[str]) -> str:
    """Digests stay: `windlass._core.values.hidden_keys` says what is shown in their place."""
    return map_around_digests(key, lambda part: redacted_text(part, values))


def _told(text: str | None, values: Sequence[str]) -> str | None:
    return None if text is None else redacted_text(text, values)
