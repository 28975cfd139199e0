"""From the parts that a user wrote to the parts that are stored."""

from __future__ import annotations

from windlass._core.flows.flow import Edge, NewPart, PartKind
from windlass._core.flows.plan import complete


def a_part(name: str, *after: Edge) -> NewPart:
    return NewPart(name=name, task=name, after=after)


def test_the_end_waits_for_every_part() -> None:
    parts = [a_part("a"), a_part("b", Edge(0)), a_part("c")]
    *given, end = complete(parts)
    assert given == parts
    assert (end.name, end.kind) == ("end", PartKind.END)
    assert end.after == (Edge(0), Edge(1), Edge(2))


def test_a_flow_without_parts_has_an_end() -> None:
    (end,) = complete([])
    assert (end.kind, end.after) == (PartKind.END, ())


def test_a_failure_that_all_parts_after_it_tolerate_does_not_fail_the_flow() -> None:
    tolerant = Edge(0, strict=False)
    *_, end = complete([a_part("a"), a_part("b", tolerant), a_part("c", tolerant)])
    assert end.after == (tolerant, Edge(1), Edge(2))


def test_one_part_that_does_not_tolerate_it_is_enough_to_fail_the_flow() -> None:
    *_, end = complete([a_part("a"), a_part("b", Edge(0, strict=False)), a_part("c", Edge(0))])
    assert end.after[0] == Edge(0, strict=True)


def test_callbacks_wait_for_the_end_alone() -> None:
    good = NewPart(name="good", task="tell", after=(Edge(0),))
    bad = NewPart(name="bad", task="warn", when="failed", after=(Edge(0),))
    always = NewPart(name="always", task="close", after=(Edge(0, strict=False),))
    _, end, *callbacks = complete([a_part("a")], [good, bad, always])
    assert end.after == (Edge(0),)
    assert [(one.name, one.task, one.when) for one in callbacks] == [
        ("good", "tell", "succeeded"),
        ("bad", "warn", "failed"),
        ("always", "close", "succeeded"),
    ]
    assert {one.kind for one in callbacks} == {PartKind.CALLBACK}
    assert [one.after for one in callbacks] == [
        (Edge(1, strict=True),),
        (Edge(1, strict=True),),
        (Edge(1, strict=False),),
    ]
