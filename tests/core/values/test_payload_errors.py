from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, ParamSpec

import msgspec
import pytest

from tests.core.values.shop import ID, Address, Item, Opaque, Order, anything, send, taking
from windlass._core.values.payload import MIB, Codec, decode_any, encode_any
from windlass._tasks.context import Context
from windlass._tasks.task import wants_context
from windlass.errors import DefinitionError, PayloadError, PayloadTooLarge

P = ParamSpec("P")

# --- calls that do not fit --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((), {}, "Missing required argument 'to'"),
        ((), {"subject": "x"}, "Missing required argument 'to'"),
        (("a",), {"cc": "b"}, "Unexpected keyword argument 'cc'"),
        (("a", "b", "c"), {}, "Extra positional arguments"),
        (("a",), {"to": "b"}, "'to'"),
    ],
)
def test_a_call_the_function_would_refuse_is_refused_with_its_signature(
    args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    with pytest.raises(PayloadError) as refused:
        Codec(send).encode(args, kwargs)
    assert says in str(refused.value)
    assert "send(to: " in str(refused.value)


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((7,), {}, r"Expected `str`, got `int` - at `\$.to`"),
        (("a",), {"copies": "3"}, r"Expected `int`.*got `str` - at `\$.copies`"),
        (("a",), {"copies": True}, r"got `bool` - at `\$.copies`"),
        (("a",), {"urgent": None}, r"got `null` - at `\$.urgent`"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused_at_the_call_and_named(
    args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    with pytest.raises(PayloadError, match=says):
        Codec(send).encode(args, kwargs)


def test_a_model_that_does_not_validate_is_refused_at_the_call() -> None:
    with pytest.raises(PayloadError, match="placed"):
        Codec(taking(Order)).encode(({"id": str(ID), "placed": "yesterday"},), {})


def test_a_value_outside_its_declared_bounds_is_refused() -> None:
    with pytest.raises(PayloadError, match=">= 0"):
        Codec(taking(Annotated[int, msgspec.Meta(ge=0)])).encode((-1,), {})


def test_a_positional_only_argument_cannot_be_named() -> None:
    def function(a: int = 1, b: int = 2, /) -> None: ...

    with pytest.raises(PayloadError, match="b must be given by position"):
        Codec(function).encode((), {"b": 3})
    assert Codec(function).decode(Codec(function).encode((5,), {})) == ((5,), {})


def test_an_unsupported_type_is_named_with_the_supported_ones() -> None:
    refusals: list[Callable[[], object]] = [
        lambda: Codec(anything).encode((Opaque(),), {}),
        lambda: Codec(anything).encode(([{"deep": Opaque()}],), {}),
        lambda: encode_any(Opaque()),
    ]
    for refuse in refusals:
        with pytest.raises(PayloadError, match=r"Opaque cannot be stored.*dataclasses"):
            refuse()


# --- values that break other codecs -----------------------------------------------------------


@pytest.mark.parametrize("endless", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("kind", "wrap"),
    [
        (float, lambda x: x),
        (float | None, lambda x: x),
        (Any, lambda x: x),
        (Any, lambda x: [None, {"deep": (x,)}]),
        (list[float | None], lambda x: [1.0, x]),
    ],
)
def test_nan_and_infinity_are_refused_and_do_not_become_none(
    endless: float, kind: object, wrap: Callable[[float], object]
) -> None:
    with pytest.raises(PayloadError, match="no NaN and no infinity"):
        Codec(taking(kind)).encode((wrap(endless),), {})
    with pytest.raises(PayloadError, match="no NaN and no infinity"):
        encode_any(wrap(endless))


def test_a_none_beside_ordinary_floats_is_no_nan() -> None:
    codec = Codec(anything)
    value = {"a": None, "b": [1.5, -0.0, "null", "NaN"]}
    assert codec.decode(codec.encode((value,), {})) == ((value,), {})


def test_a_lone_surrogate_is_refused() -> None:
    for text in ("\ud800", "ok \udfff ok"):
        with pytest.raises(PayloadError, match="surrogates"):
            Codec(taking(str)).encode((text,), {})
        with pytest.raises(PayloadError, match="surrogates"):
            encode_any([text])


def test_an_integer_of_thousands_of_digits_is_refused() -> None:
    huge = 10**5000
    refusals: list[Callable[[], object]] = [
        lambda: Codec(taking(int)).encode((huge,), {}),
        lambda: Codec(anything).encode((huge,), {}),
        lambda: encode_any(huge),
        lambda: Codec(taking(int)).decode(b'{"value":' + b"1" * 5000 + b"}"),
    ]
    for refuse in refusals:
        with pytest.raises(PayloadError):
            refuse()


def nested(levels: int) -> object:
    value: object = []
    for _ in range(levels):
        value = [value]
    return value


def test_a_hundred_thousand_levels_are_refused_without_a_crash() -> None:
    deep, stored = nested(100_000), b"[" * 100_000 + b"]" * 100_000
    refusals: list[Callable[[], object]] = [
        lambda: Codec(anything).encode((deep,), {}),
        lambda: encode_any(deep),
        lambda: Codec(anything).decode(b'{"value":' + stored + b"}"),
        lambda: Codec(taking(Any)).decode_result(stored),
        lambda: decode_any(stored),
    ]
    for refuse in refusals:
        with pytest.raises(PayloadError, match="recursion"):
            refuse()


def test_a_value_that_contains_itself_is_refused() -> None:
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(PayloadError, match="recursion"):
        Codec(anything).encode((circle,), {})


# --- size -------------------------------------------------------------------------------------


def test_a_payload_may_be_as_large_as_the_limit_and_not_a_byte_larger() -> None:
    codec = Codec(taking(str))
    shell = len(b'{"value":""}')
    assert len(codec.encode(("x" * (100 - shell),), {}, limit=100)) == 100
    with pytest.raises(PayloadTooLarge) as refused:
        codec.encode(("x" * (101 - shell),), {}, limit=100)
    assert (refused.value.size, refused.value.limit) == (101, 100)
    assert "pass its key" in str(refused.value)


def test_the_limit_is_one_mebibyte_unless_said_otherwise() -> None:
    assert MIB == 1_048_576
    with pytest.raises(PayloadTooLarge, match="limit of 1,048,576"):
        Codec(taking(str)).encode(("x" * MIB,), {})
    with pytest.raises(PayloadTooLarge, match="the result is 1,048,578 bytes"):
        encode_any("x" * MIB)


def test_a_payload_that_is_too_large_is_caught_as_any_payload_error() -> None:
    with pytest.raises(PayloadError):
        encode_any("x" * 10, limit=5)


# --- stored bytes that do not fit -------------------------------------------------------------


@pytest.mark.parametrize(
    "stored",
    [b"", b"{", b"null", b"[1]", b'"x"', b"\xff\xfe", b'{"to":1}', b"{}", b'{"to":"a","cc":1}'],
)
def test_stored_arguments_that_do_not_fit_are_refused_with_the_signature(stored: bytes) -> None:
    with pytest.raises(PayloadError, match=r"stored arguments do not fit send\(to: "):
        Codec(send).decode(stored)


def test_a_stored_result_that_does_not_fit_is_refused() -> None:
    with pytest.raises(PayloadError, match="stored result of send does not fit"):
        Codec(send).decode_result(b"7")
    with pytest.raises(PayloadError, match="Opaque"):
        Codec(taking(Opaque)).decode_result(b"{}")


@pytest.mark.parametrize("stored", [b"", b"{", b"\xff", b"[1,]"])
def test_bytes_that_are_no_json_are_refused(stored: bytes) -> None:
    with pytest.raises(PayloadError, match="not JSON"):
        decode_any(stored)


def test_no_result_is_none_and_costs_nothing_to_store() -> None:
    assert encode_any(None) is None
    assert decode_any(None) is None
    assert Codec(send).decode_result(None) is None


def test_a_function_that_promises_nothing_may_still_have_returned_something() -> None:
    def function() -> None: ...

    assert Codec(function).decode_result(b'{"a":1}') == {"a": 1}


# --- functions that cannot be tasks -----------------------------------------------------------


def test_untyped_star_parameters_are_refused_with_advice() -> None:
    def many(*names) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN002
    def open_ended(**options) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN003
    def decorated(function: Callable[P, str]) -> Callable[P, None]:
        def inner(*args: P.args, **kwargs: P.kwargs) -> None: ...

        return inner

    with pytest.raises(DefinitionError, match=r"takes \*names.*as in \*names: str"):
        Codec(many)
    with pytest.raises(DefinitionError, match=r"takes \*args.*functools\.wraps"):
        Codec(decorated(send))
    with pytest.raises(DefinitionError, match=r"takes \*\*options"):
        Codec(open_ended)


def test_a_context_in_the_wrong_place_is_refused_when_it_is_written() -> None:
    def last(order: int, ctx: Context) -> None: ...
    def by_name(order: int, *, ctx: Context) -> None: ...
    def right(ctx: Context, order: int) -> None: ...

    for function in (last, by_name):
        with pytest.raises(DefinitionError, match="make it the first parameter"):
            wants_context(function)
    assert wants_context(right)


@pytest.mark.parametrize("annotation", ["Nowhere", "datetime.nowhere", "int["])
def test_an_annotation_that_cannot_be_resolved_is_refused(annotation: str) -> None:
    def function(value: Any) -> None: ...

    function.__annotations__ = {"value": annotation}
    with pytest.raises(DefinitionError, match=r"cannot be resolved.*TYPE_CHECKING"):
        Codec(function)


@pytest.mark.parametrize("kind", [Address | Item, int | Order], ids=str)
def test_an_annotation_that_json_cannot_tell_apart_is_refused(kind: object) -> None:
    with pytest.raises(DefinitionError, match="cannot be described as JSON"):
        Codec(taking(kind))
