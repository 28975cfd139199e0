"""Every behaviour that Windlass promises has its test, its decision, or is known to be missing.

The table is the folder ``behaviours``, one TOML file for a few subjects. An entry has ``what``, the
behaviour in a few words, and one of three: ``tests`` that prove it; ``decided``, what Windlass does
instead and why, with tests of that; or ``missing``, what is still to be built, with tests of the
part that exists. Tests are named as pytest names them, conformance tests by their class.
"""

from __future__ import annotations

import pytest

from tests.requirements.table import (
    Behaviour,
    Section,
    Table,
    read,
    the_table,
    unknown_tests,
    wrong_entries,
    wrong_ids,
)

BEHAVIOURS = 352

MISSING: set[str] = set()
"""Not built yet. An id is taken off when its behaviour has a test; none is ever added."""


def test_every_behaviour_is_listed_once_and_in_order() -> None:
    table = the_table()
    assert wrong_ids(table) == []
    assert sum(section.count for section in table.sections.values()) == BEHAVIOURS


def test_every_behaviour_has_tests_a_decision_or_a_known_gap() -> None:
    assert list(wrong_entries(the_table())) == []


def test_every_named_test_exists() -> None:
    assert list(unknown_tests(the_table())) == []


def test_nothing_is_missing_but_what_is_known_to_be() -> None:
    assert the_table().missing == MISSING


# --- the table itself can be wrong, and that is found ---------------------------------------------

HERE = "tests/requirements/test_behaviours.py"


def a_table(*entries: tuple[str, Behaviour], count: int = 2) -> Table:
    return Table({"A": Section(count, "a subject")}, entries)


def proven(*tests: str) -> Behaviour:
    return Behaviour("works", tests or (f"{HERE}::test_every_named_test_exists",))


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["A-1"], ["A-2 is absent"]),
        (["A-1", "A-2", "A-2"], ["A-2 is there twice"]),
        (["A-1", "A-2", "A-3"], ["A-3 is in no section"]),
        (["A-1", "A-2", "B-1"], ["B-1 is in no section"]),
        (["A-2", "A-1"], ["the ids are out of order"]),
        (["A-1", "A-2"], []),
    ],
)
def test_a_wrong_id_is_found(ids: list[str], says: list[str]) -> None:
    assert wrong_ids(a_table(*((name, proven()) for name in ids))) == says


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        (Behaviour("", ("t",)), ["A-1 does not say what it is"]),
        (Behaviour("x"), ["A-1 has no test, no decision and no gap"]),
        (Behaviour("x", decided="d", missing="m"), ["A-1 is both decided and missing"]),
        (Behaviour("x", ("t", "t")), ["A-1 names a test twice"]),
        (Behaviour("x", decided="d"), []),
        (Behaviour("x", ("t",), missing="m"), []),
    ],
)
def test_a_wrong_entry_is_found(entry: Behaviour, says: list[str]) -> None:
    assert list(wrong_entries(a_table(("A-1", entry)))) == says


@pytest.mark.parametrize(
    "made_up",
    [
        f"{HERE}::test_that_was_made_up",
        f"{HERE}::TestClass::test_every_named_test_exists",
        f"{HERE}::proven",
        "tests/requirements/test_elsewhere.py::test_every_named_test_exists",
        "tests/requirements/table.py",
        "src/windlass/testing/conformance/storage.py::test_a_new_job_wakes",
    ],
)
def test_a_test_that_does_not_exist_is_found(made_up: str) -> None:
    table = a_table(("A-1", proven(made_up)), ("A-2", proven()))
    assert list(unknown_tests(table)) == [f"A-1: {made_up}"]


@pytest.mark.parametrize(
    "real",
    [
        f"{HERE}::test_a_wrong_id_is_found",
        f"{HERE}::test_a_wrong_id_is_found[ids0-says0]",
        "tests/storage/test_conformance.py",
        "src/windlass/testing/conformance/storage.py::WakeupConformance::test_a_new_job_wakes",
    ],
)
def test_a_test_that_exists_is_left_alone(real: str) -> None:
    assert list(unknown_tests(a_table(("A-1", proven(real))))) == []


def test_missing_behaviours_are_counted() -> None:
    table = a_table(("A-1", Behaviour("x", missing="to be built")), ("A-2", proven()))
    assert table.missing == {"A-1"}


def test_a_misspelt_field_is_refused() -> None:
    with pytest.raises(ValueError, match="test"):
        read(['sections = {A = {count = 1, title = "a"}}\n[A-1]\nwhat = "x"\ntest = ["y"]\n'])
