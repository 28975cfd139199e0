"""Tables at any width: an id is never folded."""

from __future__ import annotations

import sys

import pytest
from click import unstyle

from windlass.cli.tables import NUMBER, print_pairs, print_table
from windlass.core.ids import short_id

JOB = "0192f3a1000070008000000000" + "9c4e07"
TITLES = ("job", "task", f"{NUMBER}attempt", "worker", "error")
ROW = (JOB, "shop.jobs.send_a_letter", "12 of 25", "w0123456789ab", "OSError: the printer is out")
AUDIT = ("now", "alice", "jobs.requeue", f"job {JOB}", f"as job {JOB}")


@pytest.mark.parametrize("row", [ROW, AUDIT])
def test_an_id_is_on_one_line_at_any_width(
    row: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    seen: set[str] = set()
    for width in range(40, 140):
        monkeypatch.setenv("COLUMNS", str(width))
        print_table(TITLES, [row])
        table, _, left_out = unstyle(capsys.readouterr().out).partition("Left out")
        assert max(map(len, table.splitlines())) <= width
        shown = JOB if JOB in table else short_id(JOB)
        assert shown in table, width
        seen.add(shown)
        whole = "".join(line.strip() for line in table.splitlines())
        for title in TITLES:
            assert title.removeprefix(NUMBER) in whole + left_out
    assert seen == {JOB, short_id(JOB)}


def test_the_id_of_one_job_is_on_one_line_at_any_width(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for width in range(30, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        print_pairs(JOB, [("parent", JOB), ("task", "a task whose name is rather long")])
        out = capsys.readouterr().out
        assert out.count(JOB) + out.count(short_id(JOB)) == 2, width


def test_a_pipe_gets_whole_ids(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(TITLES, [ROW])
    assert JOB in capsys.readouterr().out
