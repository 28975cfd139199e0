"""``windlass dashboard``, as somebody types it."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from tests.cli.fixtures import empty_file
from windlass._cli.dashboard.command import allowed_hosts_of, dashboard
from windlass._cli.main import main
from windlass._web.security.credentials import read_line
from windlass._web.security.roles import Person, Role


def refused(*words: str) -> str:
    answer = CliRunner().invoke(dashboard, words, standalone_mode=False)
    assert answer.exception is not None
    return str(getattr(answer.exception, "message", answer.exception))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com"])  # noqa: S104
def test_others_are_served_only_when_it_is_said_who_they_are(host: str, tmp_path: Path) -> None:
    said = refused("--url", empty_file(tmp_path), "--host", host)
    assert "--new-user" in said
    assert "127.0.0.1" in said


def test_a_storage_of_one_process_cannot_be_shown_by_another() -> None:
    assert "belongs to one process" in refused("--url", "memory://")


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        said = refused("--url", empty_file(tmp_path), "--port", port)
    assert f"127.0.0.1:{port}" in said
    assert "--port" in said


def line_in(text: str) -> str:
    """Find the line for the settings; before click 8.2 its test runner mixes prompts with it."""
    (line,) = [row for row in text.splitlines() if row.count(":") >= 2 and " " not in row]
    return line


def test_a_line_for_the_settings_is_printed_and_the_secret_is_not_in_it() -> None:
    made = CliRunner().invoke(
        dashboard, ["--new-user", "ada", "--role", "operator"], input="long enough\nlong enough\n"
    )
    assert read_line(line_in(made.stdout)).person == Person("ada", Role.OPERATOR)
    assert "long enough" not in made.stdout
    made = CliRunner().invoke(dashboard, ["--new-token", "ci"])
    assert read_line(line_in(made.stdout)).person == Person("ci", Role.VIEWER)
    short = CliRunner().invoke(dashboard, ["--new-user", "ada"], input="short\nshort\n")
    assert "at least 10" in short.output
    assert short.exit_code != 0


def test_behind_a_proxy_it_answers_to_the_names_of_that() -> None:
    assert "shop.example" not in (allowed_hosts_of("127.0.0.1", ()) or ())
    assert allowed_hosts_of("127.0.0.1", ["127.0.0.1"]) is None
    assert "[::1]" in (allowed_hosts_of("::1", ()) or ())
    assert "127.0.0.2" in (allowed_hosts_of("127.0.0.2", ()) or ())


def test_the_command_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "dashboard" in capsys.readouterr().out


async def test_it_serves_the_owner_of_the_link_until_stopped(tmp_path: Path) -> None:
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "windlass", "dashboard",
        "--url", empty_file(tmp_path), "--port", "0",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        assert running.stdout is not None
        link = ""
        async with asyncio.timeout(30):
            while not link:
                row = (await running.stdout.readline()).decode()
                assert row, await running.stderr.read() if running.stderr else ""
                link = next(iter(re.findall(r"http://\S+link=\S+", row)), "")
        async with httpx.AsyncClient(follow_redirects=True, trust_env=False) as browser:
            page = await browser.get(link)
            assert page.status_code == 200
            assert "link=" not in str(page.url)
            assert "server" not in page.headers
            root = httpx.URL(link).copy_with(path="/queues", query=None)
            rebound = await browser.get(root, headers={"host": "evil.test"})
            assert rebound.status_code == 400
            live = root.copy_with(path="/live", query=b"parts=queues")
            async with browser.stream("GET", live) as stream:
                assert "hello" in await anext(stream.aiter_text())
                running.send_signal(signal.SIGTERM)
                async with asyncio.timeout(20):
                    out, errors = await running.communicate()
        assert running.returncode == 0, errors
        assert errors == b""
        assert b"Ctrl-C" in out or b"once" in out
    finally:
        if running.returncode is None:
            running.kill()
            await running.wait()
