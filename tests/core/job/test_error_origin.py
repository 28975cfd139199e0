"""Where an error comes from, read off its traceback."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._core.job.error_origin import frame_of

HEAD = "Traceback (most recent call last):\n"


def frame(path: str, name: str, line: int = 1) -> str:
    return f'  File "{path}", line {line}, in {name}\n    something()\n'


def raised() -> str:
    """The traceback of an error that this very function raises."""
    try:
        raise ValueError('File "/x.py", line 1, in nowhere')
    except ValueError as error:
        return "".join(traceback.format_exception(error))


def test_the_innermost_frame_of_the_users_own_code_is_the_place() -> None:
    text = HEAD + frame("/srv/shop/jobs/mail.py", "send") + frame("/srv/shop/smtp.py", "deliver")
    assert frame_of(text + "ValueError: no\n") == "shop/smtp.py deliver"


@pytest.mark.parametrize(
    "library",
    [
        "/usr/lib/python3.12/smtplib.py",
        "/venv/lib/python3.11/site-packages/httpx/_client.py",
        "/usr/lib/python3/dist-packages/requests/api.py",
        r"C:\venv\Lib\site-packages\httpx\_client.py",
        "<frozen importlib._bootstrap>",
        "<string>",
    ],
)
def test_frames_of_libraries_are_passed_over(library: str) -> None:
    text = HEAD + frame("/srv/shop/jobs/mail.py", "send") + frame(library, "connect")
    assert frame_of(text) == "jobs/mail.py send"


def test_where_all_frames_are_a_librarys_it_is_the_innermost_of_them() -> None:
    first = frame("/venv/lib/python3.11/site-packages/a/one.py", "outer")
    text = HEAD + first + frame("/venv/lib/python3.11/site-packages/b/two.py", "inner")
    assert frame_of(text) == "b/two.py inner"


@pytest.mark.parametrize("text", ["", "ValueError: no", "Traceback (most recent call last): ..."])
def test_without_a_frame_there_is_no_place(text: str) -> None:
    assert frame_of(text) == ""


def test_the_line_does_not_matter() -> None:
    places = {frame_of(HEAD + frame("/srv/shop/mail.py", "send", line)) for line in (1, 20, 300)}
    assert places == {"shop/mail.py send"}


def test_the_folder_it_is_deployed_to_does_not_matter() -> None:
    paths = [
        "/srv/releases/41/shop/mail.py",
        "/srv/releases/42/shop/mail.py",
        r"D:\app\shop\mail.py",
    ]
    assert {frame_of(HEAD + frame(path, "send")) for path in paths} == {"shop/mail.py send"}


def test_a_file_without_a_folder_is_named_alone() -> None:
    assert frame_of(HEAD + frame("mail.py", "send")) == "mail.py send"


def test_of_a_chain_of_errors_the_last_one_counts() -> None:
    first = HEAD + frame("/srv/shop/low.py", "read") + "KeyError: 'x'\n"
    between = "\nDuring handling of the above exception, another exception occurred:\n\n"
    text = first + between + HEAD + frame("/srv/shop/high.py", "load") + "ValueError: no\n"
    assert frame_of(text) == "shop/high.py load"


def test_a_name_may_have_more_than_letters() -> None:
    text = HEAD + frame("/srv/shop/mail.py", "Outer.send.<locals>.<lambda>")
    assert frame_of(text) == "shop/mail.py Outer.send.<locals>.<lambda>"


def test_a_real_traceback_is_read() -> None:
    assert frame_of(raised()) == "job/test_error_origin.py raised"


def test_a_long_place_keeps_its_end() -> None:
    text = HEAD + frame("/srv/shop/mail.py", "f" * 300)
    assert frame_of(text) == "f" * 200


@given(st.text(max_size=400))
def test_any_text_has_a_place_or_none(text: str) -> None:
    assert len(frame_of(text)) <= 200
