"""Tables at any width: an id is never folded."""

from __future__ import annotations

import sys

import pytest
from click import unstyle

from windlass._cli.output.tables import NUMBER, print_pairs, print_table
from windlass._core.job.ids import short_id

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
        table, _, left_out = unstyle(capsys.readouterr().out).partition("Columns left out")
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


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_name_is_shortened_and_never_split(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    names = [f"shop.orders.{'count_' * 20}{n}" for n in range(2)]
    print_table(("job", "task", "error"), [(JOB, names[0], ""), (JOB, names[1], "")], cut=["task"])
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert "error" not in head  # a column that says nothing makes room
    assert len(rows) == 2
    for n, row in enumerate(rows):
        job, name = row.split()
        assert job == short_id(JOB)
        assert (name.startswith("shop."), name.endswith(str(n)), "…" in name) == (True, True, True)


def test_a_sentence_is_folded_between_words_where_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    print_table(("task", "error"), [("a" * 60, "the printer is out of paper again today")])
    text = unstyle(capsys.readouterr().out)
    assert text.count("…") == 1
    for word in ["the", "printer", "is", "out", "of", "paper", "again", "today"]:
        assert word in text.split()
