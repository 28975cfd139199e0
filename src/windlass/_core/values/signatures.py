"""The parameters and the result of a function, as types that JSON is decoded by."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Union

import msgspec

from windlass.errors import DefinitionError

__all__ = ["STARS", "field_of", "hints_of", "result_type", "returned_type", "signature_shape"]


def signature_shape(function: Callable[..., Any], *, skip_first: bool) -> list[inspect.Parameter]:
    """Return the parameters that come from the payload; refuse those that cannot."""
    parameters = list(inspect.signature(function).parameters.values())
    if skip_first:
        parameters = parameters[1:]
    for parameter in parameters:
        if parameter.kind in STARS and _says_nothing(parameter.annotation):
            stars = STARS[parameter.kind]
            message = (
                f"task {function.__qualname__} takes {stars}{parameter.name} without an "
                f"annotation. Annotate it, as in {stars}{parameter.name}: str, or name each "
                f"argument. If a decorator made this function, use functools.wraps in it."
            )
            raise DefinitionError(message)
    return parameters


STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def _says_nothing(annotation: object) -> bool:
    """Tell whether the signature is missing, or only repeats that of another function."""
    if isinstance(annotation, str):
        return annotation.endswith((".args", ".kwargs"))
    named = (typing.ParamSpecArgs, typing.ParamSpecKwargs)
    return annotation is inspect.Parameter.empty or isinstance(annotation, named)


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        message = (
            f"an annotation of task {function.__qualname__} cannot be resolved: {error}. Import "
            f"the type at run time, not only under TYPE_CHECKING."
        )
        raise DefinitionError(message) from error


def field_of(
    parameter: inspect.Parameter, hints: Mapping[str, Any]
) -> tuple[str, Any] | tuple[str, Any, Any]:
    kind = hints.get(parameter.name, Any)
    if parameter.kind in STARS:
        if typing.get_origin(kind) is typing.Unpack:  # **more: Unpack[SomeTypedDict]
            (kind,) = typing.get_args(kind)
        else:
            many = parameter.kind is parameter.VAR_POSITIONAL
            kind = types.GenericAlias(*((list, kind) if many else (dict, (str, kind))))
    elif parameter.default is parameter.empty:
        return (parameter.name, kind)
    # Not the default itself: a changed default must apply to jobs that are already waiting.
    return (parameter.name, Union[kind, msgspec.UnsetType], msgspec.UNSET)  # noqa: UP007


def returned_type(hints: Mapping[str, Any]) -> Any:
    """Return the annotation of what a call gives in the end."""
    wanted = hints.get("return", Any)
    origin = typing.get_origin(wanted) or wanted
    if isinstance(origin, type) and issubclass(origin, Awaitable):
        # A plain function that returns an awaitable; awaiting it gives the result.
        wanted = (typing.get_args(wanted) or (Any,))[-1]
    return wanted


def result_type(hints: Mapping[str, Any]) -> Any:
    """Return the type that a stored result is decoded by."""
    wanted = returned_type(hints)
    if wanted is None or wanted is types.NoneType:
        return Any
    return wanted
