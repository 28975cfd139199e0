"""Arguments and results as JSON, by the function's annotations on both sides.

The arguments of a task become a msgspec Struct type once. Building one binds a call, and refuses a
wrong one, in C. Encoding it makes the payload; decoding it gives the worker typed values again.
Never pickle: reading a payload must not run code, wherever it came from.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from windlass._core.flows.pending import (
    Pending,
    PlaceholderMet,
    collect,
    mark_pending,
    wanted_in,
    with_placeholders,
)
from windlass._core.flows.results import results_of
from windlass._core.values.redaction import secret_tags
from windlass._core.values.result_types import check_result, is_results
from windlass._core.values.secret_types import SECRET, secrets_of
from windlass._core.values.signatures import (
    STARS,
    field_of,
    hints_of,
    result_type,
    returned_type,
    signature_shape,
)
from windlass.errors import DefinitionError, PayloadError, PayloadTooLarge

__all__ = ["MIB", "Codec", "Secret", "decode_any", "encode_any", "is_json", "signature_shape"]

MIB = 1024 * 1024

T = TypeVar("T")
Secret = Annotated[T, SECRET]
"""``card: Secret[str]`` is a ``str`` for the handler and for type checkers. Logs, errors, the
command line and the dashboard show ``***`` instead. The storage holds the value, because workers
need it.
"""

_NOT_STORABLE = (
    TypeError,
    ValueError,
    OverflowError,
    RecursionError,
    NotImplementedError,
    msgspec.MsgspecError,
)


def _to_builtin(value: object) -> object:
    if type(value) is Pending:
        return mark_pending(value)
    dump = getattr(value, "model_dump", None)
    if dump is not None:
        return dump(mode="json")  # a pydantic model
    message = (
        f"{type(value).__module__}.{type(value).__qualname__} cannot be stored as JSON; use "
        f"dataclasses, msgspec Structs, pydantic models, enums, dates or plain JSON values"
    )
    raise TypeError(message)


def _from_builtin(wanted: type[Any], value: object) -> object:
    if wanted is object:
        return value
    if is_results(wanted):
        return results_of(wanted, value, _from_builtin)
    validate = getattr(wanted, "model_validate", None)
    if validate is not None:
        return validate(value)
    message = f"stored JSON cannot be turned into {wanted!r}"
    raise TypeError(message)


_ENCODER = msgspec.json.Encoder(enc_hook=_to_builtin)
_SORTED = msgspec.json.Encoder(enc_hook=_to_builtin, order="deterministic")


def _to_json(value: object) -> bytes:
    encoded = _ENCODER.encode(value)
    if b"null" in encoded:
        _refuse_endless(value)
    return encoded


def _refuse_endless(value: object) -> None:
    """Refuse NaN and infinity, which JSON does not have: the encoder writes null, and None would be
    read. Called only if a null was written, which is rare.
    """
    if _holds_endless(msgspec.to_builtins(value, enc_hook=_to_builtin)):
        message = "JSON has no NaN and no infinity; pass None or a text instead"
        raise ValueError(message)


def _holds_endless(value: object) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(_holds_endless(part) for pair in value.items() for part in pair)
        case list() | tuple() | set() | frozenset():
            return any(_holds_endless(part) for part in value)
        case _:
            return False


class Codec:
    """Encodes and decodes the calls and results of one function."""

    __slots__ = (
        "_decode",
        "_function",
        "_keywords",
        "_more",
        "_nameless",
        "_positional",
        "_rest",
        "_result",
        "_scalar",
        "_struct",
        "marks",
        "returns",
        "secrets",
    )

    def __init__(self, function: Callable[..., Any], *, skip_first: bool = False) -> None:
        """Build the types once; an annotation that cannot be resolved is a DefinitionError."""
        self._function = function
        parameters = signature_shape(function, skip_first=skip_first)
        hints = hints_of(function)
        by_name = (inspect.Parameter.KEYWORD_ONLY, *STARS)
        plain = [p for p in parameters if p.kind not in by_name]
        named = [p for p in parameters if p.kind in by_name]
        self._rest = next((p.name for p in named if p.kind is p.VAR_POSITIONAL), None)
        self._more = next((p.name for p in named if p.kind is p.VAR_KEYWORD), None)
        self._positional = len(plain)
        self._keywords = tuple(p.name for p in named)
        self._nameless = frozenset(p.name for p in plain if p.kind is p.POSITIONAL_ONLY)
        try:
            base = msgspec.defstruct(
                "Arguments", [field_of(p, hints) for p in plain], forbid_unknown_fields=True
            )
            self._struct: type[msgspec.Struct] = msgspec.defstruct(
                "Arguments",
                [field_of(p, hints) for p in named],
                bases=(base,),
                kw_only=True,
                forbid_unknown_fields=True,
            )
            self._decode = msgspec.json.Decoder(self._struct, dec_hook=_from_builtin).decode
        except (TypeError, ValueError) as error:
            message = (
                f"the arguments of task {function.__qualname__} cannot be described as JSON: "
                f"{error}. Change the annotation, or pass a simpler value."
            )
            raise DefinitionError(message) from error
        self.returns: Any = returned_type(hints)
        """The annotation of its result."""
        self._result = result_type(hints)
        self._scalar = self._result if self._result in (int, str, bool, float) else None
        taken = {p.name for p in parameters}
        names = secrets_of({name: hints[name] for name in hints if name in taken})
        self.secrets: frozenset[str] = frozenset(names)
        """The arguments, and their fields, that are `Secret`."""
        self.marks: tuple[str, ...] = secret_tags(names)
        """The tags that mark its jobs as having secrets."""

    @property
    def names(self) -> tuple[str, ...]:
        """The argument names, in order."""
        return self._struct.__struct_fields__

    def fingerprint(self) -> str:
        """Return sixteen digits that are equal if the function takes the same arguments."""
        try:
            shape: object = msgspec.json.schema(self._struct, schema_hook=_shape_of)
        except Exception:  # noqa: BLE001 -- a user's type may raise anything
            shape = str(inspect.signature(self._function))
        text = msgspec.json.encode(shape, order="deterministic", enc_hook=str)
        return hashlib.sha256(text).hexdigest()[:16]

    def encode(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, limit: int = MIB
    ) -> bytes:
        """Encode the payload of a call. A call that does not fit the function is refused here."""
        try:
            if self._rest or self._more:
                args, kwargs = self._gathered(args, kwargs)
            call = self._struct(*args, **kwargs)
            if named := self._nameless.intersection(kwargs):
                message = f"{', '.join(sorted(named))} must be given by position, not by name"
                raise TypeError(message)
        except TypeError as error:
            message = f"{self._function.__qualname__}{inspect.signature(self._function)}: {error}"
            raise PayloadError(message) from error
        try:
            payload = _ENCODER.encode(call)
            if b"null" in payload:
                _refuse_endless(call)
            # Decoding what was just encoded is what the worker will do: a value of the wrong type
            # fails here, at the caller, and not an hour later in a worker's log.
            self._decode(payload)
        except PlaceholderMet:
            payload = self._encode_pending(call)
        except _NOT_STORABLE as error:
            message = f"the arguments of {self._function.__qualname__} do not fit: {error}"
            raise PayloadError(message) from error
        if len(payload) > limit:
            what = f"the payload of {self._function.__qualname__}"
            raise PayloadTooLarge(what, len(payload), limit)
        return payload

    def _encode_pending(self, call: msgspec.Struct) -> bytes:
        """Encode a call that takes results of its flow. The other arguments are checked."""
        given = {
            name: value
            for name, value in msgspec.structs.asdict(call).items()
            if value is not msgspec.UNSET
        }
        kinds = typing.get_type_hints(self._struct, include_extras=True)
        try:
            payload = collect(given, _ENCODER)
            waiting = {one.place[0] for one in wanted_in(payload)}
            for name, value in given.items():
                if type(value) is Pending:
                    check_result(value, kinds[name], name)
                elif name not in waiting:
                    _check(value, kinds[name])
        except _NOT_STORABLE as error:
            message = f"the arguments of {self._function.__qualname__} do not fit: {error}"
            raise PayloadError(message) from error
        return payload

    def decode(self, payload: bytes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Decode the arguments for the function. Defaults that were not given are left to the
        function.
        """
        try:
            call = self._decode(payload)
        except _NOT_STORABLE as error:
            message = (
                f"the stored arguments do not fit {self._function.__qualname__}"
                f"{inspect.signature(self._function)}: {error}"
            )
            raise PayloadError(message) from error
        values = msgspec.structs.astuple(call)
        if not self._keywords and msgspec.UNSET not in values:
            return values, {}
        return self._split(values)

    def named(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a valid call, by the names of the parameters."""
        if self._rest or self._more:
            args, kwargs = self._gathered(args, kwargs)
        return {**dict(zip(self.names, args, strict=False)), **kwargs}

    def _gathered(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Add the values of ``*rest`` and ``**more`` under those two names, as they are stored."""
        stars = {self._rest, self._more}
        known = {name for name in self.names if name not in self._nameless and name not in stars}
        named = {name: value for name, value in kwargs.items() if name in known}
        more = {name: value for name, value in kwargs.items() if name not in known}
        if more and self._more is None:
            message = f"Unexpected keyword argument {next(iter(more))!r}"
            raise TypeError(message)
        if more and self._more is not None:
            named[self._more] = more
        if self._rest is not None and len(args) > self._positional:
            named[self._rest] = args[self._positional :]
            args = args[: self._positional]
        return args, named

    def decode_known(self, payload: bytes) -> dict[str, Any]:
        """Decode the arguments of a call that takes results of its flow, by name. A `Pending`
        stands for each result: using it raises InvalidArgument.
        """
        waiting = {one.place[0] for one in wanted_in(payload)}
        kinds = typing.get_type_hints(self._struct, include_extras=True)
        return {
            name: value
            if name in waiting
            else msgspec.convert(value, kinds[name], dec_hook=_from_builtin)
            for name, value in with_placeholders(payload).items()
        }

    def canonical(self, payload: bytes) -> bytes:
        """Encode equal arguments as equal bytes, in any order of their keys and sets."""
        try:
            return _SORTED.encode(self._decode(payload))
        except _NOT_STORABLE as error:
            message = f"the arguments of {self._function.__qualname__} do not fit: {error}"
            raise PayloadError(message) from error

    def _split(self, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        unset = msgspec.UNSET
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, value in zip(self.names, values, strict=True):
            if value is unset:
                continue
            # After a default that was left out, the rest must be passed by name.
            if len(args) < self._positional and not kwargs and name == self.names[len(args)]:
                args.append(value)
            else:
                kwargs[name] = value
        rest = kwargs.pop(self._rest, ()) if self._rest else ()
        more = kwargs.pop(self._more, {}) if self._more else {}
        return (*args, *rest), {**kwargs, **more}

    def encode_result(self, value: object, *, limit: int, what: str) -> bytes | None:
        """Encode a result as JSON, checked against the return annotation that its readers decode it
        by.
        """
        encoded = encode_any(value, limit=limit, what=what)
        if self._result is Any or encoded is None or type(value) is self._scalar:
            return encoded
        try:
            msgspec.json.decode(encoded, type=self._result, dec_hook=_from_builtin)
        except _NOT_STORABLE as error:
            message = (
                f"{what} does not fit its return annotation: {error}. Correct the annotation, or "
                f"what the function returns"
            )
            raise PayloadError(message) from error
        return encoded

    def decode_result(self, result: bytes | None) -> Any:
        """Decode a job's result by the function's return annotation."""
        if result is None:
            return None
        try:
            return msgspec.json.decode(result, type=self._result, dec_hook=_from_builtin)
        except _NOT_STORABLE as error:
            message = f"the stored result of {self._function.__qualname__} does not fit: {error}"
            raise PayloadError(message) from error


def _check(value: object, kind: Any) -> None:
    """Refuse a value that a worker could not decode."""
    msgspec.json.decode(_to_json(value), type=kind, dec_hook=_from_builtin)


def encode_any(value: object, *, limit: int = MIB, what: str = "the result") -> bytes | None:
    """Encode a result as JSON. None stays None and needs no storage."""
    if value is None:
        return None
    try:
        encoded = _to_json(value)
    except _NOT_STORABLE as error:
        message = f"{what} cannot be stored: {error}"
        raise PayloadError(message) from error
    if len(encoded) > limit:
        raise PayloadTooLarge(what, len(encoded), limit)
    return encoded


def decode_any(value: bytes | None) -> Any:
    """Decode plain JSON values, for readers that do not have the function."""
    if value is None:
        return None
    try:
        return msgspec.json.decode(value)
    except _NOT_STORABLE as error:
        message = f"stored bytes are not JSON: {error}"
        raise PayloadError(message) from error


def is_json(value: bytes) -> bool:
    """Tell whether stored bytes are JSON, whether or not they fit a function."""
    try:
        msgspec.json.decode(value)
    except _NOT_STORABLE:
        return False
    return True


def _shape_of(kind: type[Any]) -> dict[str, Any]:
    """Describe a type that msgspec does not know, for a fingerprint."""
    describe = getattr(kind, "model_json_schema", None)
    if describe is not None:
        return dict(describe())
    return {"title": f"{kind.__module__}.{kind.__qualname__}"}
