"""Secrets: found by annotation, by name and by their looks, masked wherever they turn up."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

import msgspec
import pytest

from windlass import Secret
from windlass._core.job.job import Attempt, AttemptError, JobId, JobRecord, LimitUse, Progress
from windlass._core.job.state import State, Verb
from windlass._core.values import redaction
from windlass._core.values.payload import Codec
from windlass._core.values.redaction import (
    MASK,
    looks_secret,
    redacted_error,
    redacted_history,
    redacted_job,
    redacted_json,
    redacted_text,
    redacted_url,
    secret_names,
    secret_tags,
    secret_tags_in,
    secret_values,
)

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "password",
            "db_passwd",
            "PASSWORD",
            "userPassword",
            "secret",
            "client_secret",
            "clientSecret",
        ),
        *("token", "access_token", "accessToken", "x-api-key", "api_key", "apikey", "private_key"),
        *(
            "authorization",
            "Set-Cookie",
            "credentials",
            "credit_card",
            "ssn",
            "user_ssn",
            "userSsn",
        ),
        *("passphrase", "cvv", "jwt", "dsn", "passWord", "pass-phrase", "user_pass_code"),
    ],
)
def test_a_name_that_sounds_like_a_secret_is_one(name: str) -> None:
    assert looks_secret(name)
    assert redacted_json(msgspec.json.encode({name: "hunter22"})) == msgspec.json.encode(
        {name: MASK}
    )


@pytest.mark.parametrize(
    "name",
    [
        "to",
        "classname",
        "compass",
        "secretary",
        "key",
        "keyboard",
        "author",
        "lesson",
        "pass_no",
        "bypass_words",
    ],
)
def test_a_name_that_does_not_is_none(name: str) -> None:
    assert not looks_secret(name)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://ada:s3cret@db/shop", "postgresql://ada:***@db/shop"),
        ("redis://:s3cret@db:6379/0 is away", "redis://:***@db:6379/0 is away"),
        ("postgresql://ada:s3@cret@db/shop", "postgresql://ada:***@db/shop"),
        ("https://shop.example/a:b@c", "https://shop.example/a:b@c"),
        (f"refused: {JWT}!", "refused: ***!"),
        ("AKIAIOSFODNN7EXAMPLE was refused", "*** was refused"),
        ("Authorization: Bearer abc123def456", "Authorization: Bearer ***"),
        ("the bearer authentication failed", "the bearer authentication failed"),
        ("connect(password='hunter2', to='ada')", "connect(password='***', to='ada')"),
        ('{"api_key": "hunter2", "to": "ada"}', '{"api_key": "***", "to": "ada"}'),
        ("host=db password=hunter2 user=ada", "host=db password=*** user=ada"),
        ("api_key = 'hunter2'", "api_key = '***'"),
        ("AWS_ACCESS_KEY_ID=hunter2", "AWS_ACCESS_KEY_ID=***"),
        ("encryption-keys: 'hunter2'", "encryption-keys: '***'"),
        ("GET /?token=hunter2&page=2", "GET /?token=***&page=2"),
        ("invalid token: unexpected end", "invalid token: unexpected end"),
        ("nothing to see", "nothing to see"),
    ],
)
def test_text_that_looks_like_a_secret_is_masked(text: str, shown: str) -> None:
    assert redacted_text(text) == shown
    assert redacted_json(msgspec.json.encode([text])) == msgspec.json.encode([shown])


def test_a_private_key_is_masked_whole() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabcd\n-----END RSA PRIVATE KEY-----"
    assert redacted_text(f"cannot read {key}.") == "cannot read ***."


@pytest.mark.parametrize(
    "text", ["a-" * 30_000, "token_" * 10_000, "://" + "a:" * 30_000, "x" * 60_000]
)
def test_no_text_takes_long(text: str) -> None:
    redacted_text(text, ("needle",))  # quadratic would run into the time limit of a test


def test_given_values_are_masked_as_python_json_and_urls_write_them() -> None:
    payload = msgspec.json.encode({"password": 'a"b\n/ü'})
    values = secret_values(payload)
    for written in ('a"b\n/ü', repr('a"b\n/ü'), '{"x": "a\\"b\\n/ü"}', "a%22b%0A%2F%C3%BC"):
        assert "ü" not in redacted_text(written, values)
        assert MASK in redacted_text(written, values)


def test_the_longest_value_is_masked_first() -> None:
    payload = msgspec.json.encode({"token": "abcd", "secret": "abcdefgh"})
    assert redacted_text("abcdefgh", secret_values(payload)) == MASK


def test_short_values_do_not_shred_texts() -> None:
    payload = msgspec.json.encode(
        {"password": "a", "token": None, "secret": True, "api_key": "   "}
    )
    assert secret_values(payload) == ()


def test_arguments_are_masked_at_any_depth_by_their_names() -> None:
    given = {
        "to": "ada",
        "login": {"password": "hunter2", "tries": 3},
        "rows": [{"apiKey": ["x", "y"]}, {"url": "redis://:s3cret@h/0"}],
        "max_tokens": 4096,
        "token": 123456,
        "secret": None,
        "cookie": False,
        "card": {"number": "4111"},
    }
    shown = msgspec.json.decode(redacted_json(msgspec.json.encode(given), {"card"}))
    assert shown == {
        "to": "ada",
        "login": {"password": MASK, "tries": 3},
        "rows": [{"apiKey": MASK}, {"url": "redis://:***@h/0"}],
        "max_tokens": 4096,
        "token": MASK,
        "secret": None,
        "cookie": False,
        "card": MASK,
    }


@pytest.mark.parametrize(
    ("stored", "hidden"),
    [
        (rb'{"p\u0061ssword": "hunter22"}', "hunter22"),
        (rb'{"\u0061p\u0069_\u006bey": "hunter22"}', "hunter22"),
        (rb'{"url": "postgres:\/\/ada:hunter22@db"}', "hunter22"),
        ('{"api\u212aey": "hunter22"}'.encode(), "hunter22"),
        (b'{"OTP": "123456"}', "123456"),
        (b'{"a": [{"userPwd": "hunter22"}]}', "hunter22"),
        (b'{"said": "api_key=\\"hunter22\\""}', "hunter22"),
        (b'{"said": "BEARER abc123def456"}', "abc123def456"),
    ],
)
def test_a_secret_is_found_however_its_json_is_written(stored: bytes, hidden: str) -> None:
    assert hidden in msgspec.json.encode(msgspec.json.decode(stored)).decode()
    shown = redacted_json(stored)
    assert hidden.encode() not in shown
    assert MASK.encode() in shown


def test_large_arguments_without_secrets_are_looked_through_once_and_not_read() -> None:
    rows = [{"id": n, "name": f"n{n}", "price": n / 8} for n in range(25_000)]
    payload = msgspec.json.encode(rows)
    begun = time.process_time()
    for _ in range(3):
        assert redacted_json(payload) is payload
        assert secret_values(payload) == ()
    quick = time.process_time() - begun
    begun = time.process_time()
    assert redacted_json(payload, {"nothing"}) is payload  # a name to look for: it is read whole
    assert quick < 3 * (time.process_time() - begun)


def test_arguments_without_secrets_stay_the_same_bytes() -> None:
    payload = b'{ "to" : "ada", "n":1.0 }'
    assert redacted_json(payload) is payload


@pytest.mark.parametrize("payload", [b"\xff\x00", b"{", b"[" * 100_000, b""])
def test_invalid_json_is_redacted_as_text(payload: bytes) -> None:
    assert redacted_json(payload) == payload
    assert secret_values(payload) == ()
    assert redacted_json(payload + b" password=hunter2") != payload + b" password=hunter2"


# --- Secret[...] ----------------------------------------------------------------------------------


@dataclass
class Card:
    number: Secret[str]
    holder: str


class Login(TypedDict):
    pin: Secret[int]


class Order(msgspec.Struct):
    card: Card
    after: Order | None = None


def pay(
    order: Order, pin: Secret[int] | None, login: Login, keys: list[Secret[str]], to: str
) -> None: ...


def test_secret_arguments_and_fields_are_found_in_annotations() -> None:
    marks = Codec(pay).marks
    assert secret_names(marks) == {"number", "pin", "keys"}
    assert secret_tags_in(("vip", *marks)) == marks


def test_a_secret_argument_is_stored_and_decoded_like_any_other() -> None:
    codec = Codec(pay)
    given = (Order(Card("4111", "ada")), 1234, Login(pin=77), ["k"], "bob")
    assert codec.decode(codec.encode(given, {})) == (given, {})


# --- jobs -----------------------------------------------------------------------------------------


def a_job(payload: dict[str, Any], **more: Any) -> JobRecord:
    return JobRecord(
        id=JobId("a" * 32),
        seq=1,
        task="pay",
        queue="default",
        payload=msgspec.json.encode(payload),
        state=State.FAILED,
        priority=0,
        created_at=NOW,
        due=NOW,
        attempt=1,
        max_attempts=1,
        budget=1,
        claim_number=1,
        **more,
    )


def test_every_text_of_a_job_is_masked() -> None:
    canary = "canary-4111"
    error = AttemptError("ValueError", f"{canary} refused", f"Traceback …\nValueError: {canary}")
    job = a_job(
        {"card": canary, "to": "ada"},
        result=msgspec.json.encode({"charged": canary}),
        error=error,
        key=f"pay/{canary}",
        limits=(LimitUse("api", canary), LimitUse("other")),
        reason=f"{canary} is over",
        progress=Progress(0.5, f"charging {canary}", {"of": [canary], "password": "p4nama-42"}),
        tags=(*secret_tags(["card"]), "vip"),
        principal=canary,
        correlation_id=f"r-{canary}",
    )
    shown = redacted_job(job)
    assert canary not in repr(shown)
    assert "p4nama-42" not in repr(shown)
    assert canary.encode() not in msgspec.json.encode(shown)
    assert msgspec.json.decode(shown.payload) == {"card": MASK, "to": "ada"}
    assert shown.tags == ("secret:card", "vip")
    ended = Attempt(
        claim_number=1,
        attempt=1,
        verb=Verb.FAIL,
        worker="w",
        started_at=NOW,
        ended_at=NOW,
        error=error,
    )
    assert canary not in repr(redacted_history(job, [ended]))


def test_a_job_without_secrets_is_shown_as_it_is() -> None:
    job = a_job({"to": "ada"}, error=AttemptError("ValueError", "no", "Traceback"), tags=("vip",))
    assert redacted_job(job) == job
    assert redacted_error(AttemptError("ValueError", "no", "Traceback")).message == "no"


SHARDS = (
    *("pass", "word", "wd", "phrase", "code", "secret", "ar", "token", "auth", "authorization"),
    *("cookie", "credential", "credit", "api", "access", "private", "signing", "key", "board"),
    *("pwd", "ssn", "cvv", "cvc", "otp", "jwt", "dsn", "\u212aey", "x", ""),
    *(
        "sent to http://a:hunter22@c",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.dozjgNry",
        "Bearer a1b2c3d4",
    ),
    *("AKIAABCDEFGHIJKLMNOP", "ghp_" + 30 * "a", "xoxb-0123456789", "sk_live_0123456789"),
)


@pytest.mark.parametrize("between", ["", "_", "-", " ", "="])
def test_the_quick_check_skips_no_secret(between: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [
        [first, between.join((first, second)), between.join((first.title(), second.title()))]
        for first in SHARDS
        for second in SHARDS
    ]
    names = {written for pair in pairs for name in pair for written in (name, name.upper())}
    payloads = {
        json.dumps(arguments, ensure_ascii=escaped).encode()
        for name in names
        for arguments in ({name: "hunter22"}, {"to": [name]})
        for escaped in (True, False)
    }
    quick = [(redacted_json(payload), secret_values(payload)) for payload in payloads]
    monkeypatch.setattr(redaction, "_innocent", lambda _: False)
    assert quick == [(redacted_json(payload), secret_values(payload)) for payload in payloads]


def test_a_text_that_is_passed_over_quickly_has_nothing_to_hide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = ("pass", "word", "secret", "token", "api", "access", "signing", "encryption", "key")
    words = {
        case(between.join((first, second)))
        for first in shards
        for second in (*shards, "phrase", "keys", "key_id", "\u212aey", "")
        for between in ("", "_", "-")
        for case in (str, str.upper, lambda word: word.replace("s", "\u017f"))
    }
    texts = [f"{word}{ending}" for word in sorted(words) for ending in ("=x", " = 'x y'", "': 'x'")]
    quick = [redacted_text(text) for text in texts]
    monkeypatch.setattr(redaction, "_SUSPECTS", ("",))
    assert quick == [redacted_text(text) for text in texts]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("memory://:hunter2@x", "memory://:***@x"),
        ("postgresql://u:hun/ter2@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("redis://:hun@ter2@h", "redis://:***@h"),
        ("postgresql://h/d?password=hunter2", "postgresql://h/d?password=***"),
        ("u:hunter2@h", "***@h"),
        ("sqlite:////srv/a@b/jobs.db", "sqlite:////srv/a@b/jobs.db"),
        ("postgresql://u@h:5432/d", "postgresql://u@h:5432/d"),
    ],
)
def test_the_url_of_a_storage_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redacted_url(url) == shown
