from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Coroutine
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Literal, TypedDict, Unpack

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import few
from tests.core.values.shop import (
    ID,
    NOON,
    ORDER,
    Address,
    Colour,
    Item,
    Level,
    Opaque,
    Options,
    Order,
    Point,
    anything,
    send,
    taking,
)
from windlass._core.values.payload import Codec, decode_any, encode_any
from windlass.errors import PayloadError

# --- round trips ------------------------------------------------------------------------------

TYPED: list[tuple[object, object]] = [
    (int, 2**70),
    (int, -(10**300)),
    (float, 0.1),
    (str, "Grüße, 世界 \x00 🚀"),
    (bool, True),
    (bytes, bytes(range(256))),
    (datetime, NOON),
    (datetime, NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))),
    (datetime, NOON.replace(tzinfo=None)),
    (date, date(2026, 3, 1)),
    (time, time(12, 30)),
    (timedelta, timedelta(days=400, microseconds=1)),
    (uuid.UUID, ID),
    (Decimal, Decimal("0.10")),
    (Colour, Colour.RED),
    (Level, Level.HIGH),
    (Literal["a", "b"], "b"),
    (Address, Address("Main St 1", lines=["x"])),
    (Item, Item("sku-1", Decimal("9.99"), Colour.BLUE)),
    (Order, ORDER),
    (Point, Point(1, 2)),
    (Options, {"colour": "red"}),
    (int | None, None),
    (int | None, 5),
    (Order | None, ORDER),
    (Address | None, None),
    (list[Order], [ORDER, ORDER]),
    (dict[str, Address], {"home": Address("x")}),
    (dict[int, Colour], {3: Colour.RED}),
    (dict[uuid.UUID, date], {ID: date(2026, 3, 1)}),
    (set[int], {1, 2, 3}),
    (frozenset[str], frozenset({"a"})),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (int | str | None, "x"),
    (Annotated[int, msgspec.Meta(ge=0)], 7),
    (Any, {"a": [1, 2.5, None, "x", True]}),
]


@pytest.mark.parametrize(("kind", "value"), TYPED, ids=lambda part: str(part)[:40])
def test_an_argument_comes_back_as_what_it_was(kind: object, value: object) -> None:
    codec = Codec(taking(kind))
    (back,), named = codec.decode(codec.encode((value,), {}))
    assert back == value
    assert type(back) is type(value)
    assert named == {}


@pytest.mark.parametrize(("kind", "value"), TYPED, ids=lambda part: str(part)[:40])
def test_a_result_comes_back_as_what_it_was(kind: object, value: object) -> None:
    back = Codec(taking(kind)).decode_result(encode_any(value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("kind", [Awaitable[Decimal], Coroutine[Any, Any, Decimal]])
def test_a_result_that_was_awaited_comes_back_as_what_it_was(kind: object) -> None:
    function = taking(str)
    function.__annotations__["return"] = kind
    back = Codec(function).decode_result(encode_any(Decimal("1.5")))
    assert back == Decimal("1.5")
    assert type(back) is Decimal


class Extra(TypedDict, total=False):
    price: Decimal


def many(to: str, /, *rest: Decimal, copies: int = 1, **more: date) -> None: ...


def extra(**more: Unpack[Extra]) -> None: ...


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "stored"),
    [
        (many, ("a",), {}, {"to": "a"}),
        (many, ("a", Decimal(2)), {"copies": 3}, {"to": "a", "rest": ["2"], "copies": 3}),
        (
            many,
            ("a",),
            # Names that the function's own parameters do not take by name are free.
            {"to": date(2030, 1, 2), "rest": date(2030, 1, 3), "more": date(2030, 1, 4)},
            {"to": "a", "more": {"to": "2030-01-02", "rest": "2030-01-03", "more": "2030-01-04"}},
        ),
        (extra, (), {"price": Decimal(2)}, {"more": {"price": "2"}}),
    ],
)
def test_stars_are_stored_as_a_list_and_a_dict(
    function: Callable[..., None],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    stored: dict[str, Any],
) -> None:
    codec = Codec(function)
    payload = codec.encode(args, kwargs)
    assert msgspec.json.decode(payload) == stored
    assert codec.decode(payload) == (args, kwargs)
    assert msgspec.json.decode(msgspec.json.encode(codec.named(args, kwargs))) == stored


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [(("a", "b"), {}), (("a",), {"when": "soon"}), ((), {"to": date(2030, 1, 2)})],
)
def test_star_arguments_must_match_their_types(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    with pytest.raises(PayloadError):
        Codec(many).encode(args, kwargs)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=3), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@few
@given(json_values)
def test_plain_values_need_no_annotation(value: object) -> None:
    codec = Codec(anything)
    assert codec.decode(codec.encode((value,), {})) == ((value,), {})
    assert decode_any(encode_any(value)) == value


def test_a_payload_is_json_that_people_and_other_languages_read() -> None:
    payload = Codec(taking(Item)).encode((Item("sku-1", Decimal("9.99"), Colour.RED),), {})
    assert payload == b'{"value":{"sku":"sku-1","price":"9.99","colour":"red"}}'


def test_a_model_may_be_given_as_the_dictionary_it_is_made_from() -> None:
    codec = Codec(taking(Order))
    given_as = {"id": str(ID), "placed": NOON.isoformat(), "items": ["a", "b"]}
    assert codec.decode(codec.encode((given_as,), {}))[0] == (ORDER,)


# --- defaults, names and positions ------------------------------------------------------------


def test_defaults_that_were_not_given_are_not_stored() -> None:
    assert Codec(send).encode(("a@b.c",), {}) == b'{"to":"a@b.c"}'


def test_defaults_that_were_given_are_stored_even_if_they_are_the_same() -> None:
    payload = Codec(send).encode(("a@b.c", "Hi"), {"copies": 1})
    assert payload == b'{"to":"a@b.c","subject":"Hi","copies":1}'


@pytest.mark.parametrize(
    ("args", "kwargs", "back"),
    [
        (("a",), {}, (("a",), {})),
        (("a", "b"), {}, (("a", "b"), {})),
        ((), {"to": "a"}, (("a",), {})),
        ((), {"subject": "b", "to": "a"}, (("a", "b"), {})),
        (("a",), {"copies": 3}, (("a",), {"copies": 3})),
        (("a", "b"), {"urgent": True, "copies": 3}, (("a", "b"), {"copies": 3, "urgent": True})),
    ],
)
def test_a_call_comes_back_as_a_call_the_function_takes(
    args: tuple[str, ...], kwargs: dict[str, Any], back: object
) -> None:
    codec = Codec(send)
    assert codec.decode(codec.encode(args, kwargs)) == back


def test_after_a_left_out_default_arguments_go_by_name() -> None:
    def function(a: int = 1, b: int = 2, c: int = 3, *, d: int = 4) -> tuple[int, ...]:
        return (a, b, c, d)

    codec = Codec(function)
    args, kwargs = codec.decode(codec.encode((), {"c": 30}))
    assert function(*args, **kwargs) == (1, 2, 30, 4)
    args, kwargs = codec.decode(codec.encode((10,), {"c": 30, "d": 40}))
    assert function(*args, **kwargs) == (10, 2, 30, 40)


def test_a_changed_default_takes_effect_for_jobs_already_waiting() -> None:
    def before(size: int = 1) -> int:
        return size

    def after(size: int = 2) -> int:
        return size

    args, kwargs = Codec(after).decode(Codec(before).encode((), {}))
    assert after(*args, **kwargs) == 2


def test_a_new_argument_with_a_default_accepts_jobs_already_waiting() -> None:
    def before(to: str) -> None: ...

    stored = Codec(before).encode(("a@b.c",), {})
    assert Codec(send).decode(stored) == (("a@b.c",), {})


def test_a_default_may_be_of_any_type_that_an_argument_may_be_of() -> None:
    def function(
        order: Order = ORDER, address: Address | None = None, item: Item | None = None
    ) -> None: ...

    codec = Codec(function)
    assert codec.decode(codec.encode((), {})) == ((), {})
    assert codec.decode(codec.encode((ORDER, None), {})) == ((ORDER, None), {})


def test_the_first_parameter_can_be_left_to_the_worker() -> None:
    def function(context: Opaque, to: str) -> None: ...

    codec = Codec(function, skip_first=True)
    assert codec.names == ("to",)
    assert codec.decode(codec.encode(("a",), {})) == (("a",), {})


def test_a_function_without_parameters_has_an_empty_payload() -> None:
    def function() -> None: ...

    codec = Codec(function)
    assert codec.encode((), {}) == b"{}"
    assert codec.decode(b"{}") == ((), {})


@pytest.mark.parametrize("name", ["self", "cls", "_hidden", "data", "type", "args", "copy"])
def test_any_parameter_name_will_do(name: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def function({name}): ...", scope)  # noqa: S102 -- names that a list can hold
    codec = Codec(scope["function"])
    assert codec.decode(codec.encode((1,), {})) == ((1,), {})


def test_an_argument_annotated_object_takes_any_json_value() -> None:
    def one(a: object, b: object = 3, *, c: list[object] | None = None) -> object: ...

    codec = Codec(one)
    for value in ("text", 7, 1.5, None, True, [1, "x"], {"k": [None]}):
        payload = codec.encode((value,), {"c": [value]})
        assert codec.decode(payload) == ((value,), {"c": [value]})
        assert codec.decode_result(encode_any(value)) == value
    with pytest.raises(PayloadError):
        codec.encode((object(),), {})
