"""What users depend on from outside Python is written down, and changes only on purpose.

``interface.json`` lists it, one entry a line. After a change that is meant, write it anew with
``python -m tests.architecture.interface``, and read its diff: each removed line breaks a user.
"""

from __future__ import annotations

import re

import pytest

from tests.architecture.interface.parts import PARTS, check, differences, entries, listed

each_part = pytest.mark.parametrize("part", list(PARTS))


@each_part
def test_nothing_that_users_depend_on_changes_unseen(part: str) -> None:
    check(part, listed()[part])


@each_part
def test_an_entry_more_or_less_is_seen(part: str) -> None:
    first, *others = entries(part)

    with pytest.raises(AssertionError, match=re.escape(f"added    {first}")):
        check(part, others)
    with pytest.raises(AssertionError, match="removed  one that was there"):
        check(part, [first, "one that was there", *others])


def test_a_renamed_entry_is_reported_with_both_names() -> None:
    assert differences(["a", "old", "z"], ["a", "new", "z"]) == ["added    new", "removed  old"]


def test_every_part_is_listed_in_order_and_once() -> None:
    assert list(listed()) == list(PARTS)
    assert all(list(part) == sorted(set(part)) for part in listed().values())
