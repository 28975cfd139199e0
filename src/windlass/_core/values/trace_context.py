"""A job's place in a trace, as text: what a propagator of OpenTelemetry writes and reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["decode_trace", "encode_trace", "merge_traces", "shown_trace"]

_MOST = 8192
"""Characters. What is longer loses its baggage, and then everything."""
_PARENT, _BAGGAGE = "traceparent", "baggage"

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder(dict[str, str]).decode


def encode_trace(carrier: Mapping[str, str]) -> str | None:
    """``carrier`` for a job: a ``traceparent`` as it is, more than that as a JSON object."""
    if not carrier:
        return None
    if carrier.keys() == {_PARENT}:
        return carrier[_PARENT]
    text = _encode(carrier).decode()
    if len(text) <= _MOST:
        return text
    slim = _without_baggage(carrier)
    return carrier.get(_PARENT) if len(slim) == len(carrier) else encode_trace(slim)


def _without_baggage(carrier: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in carrier.items() if not name.endswith(_BAGGAGE)}


def merge_traces(first: str | None, second: str) -> str | None:
    """Return the trace of two tracers. The second wins where both say something."""
    return (
        second if first is None else encode_trace({**decode_trace(first), **decode_trace(second)})
    )


def decode_trace(text: str | None) -> dict[str, str]:
    """Return the carrier that a propagator reads; empty for a job without a trace, or with one of
    no known form.
    """
    if text is None:
        return {}
    if not text.startswith("{"):
        return {_PARENT: text}
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return {}


def shown_trace(text: str | None) -> str | None:
    """Return the same for people: without baggage, which is between programs."""
    if text is None or not text.startswith("{"):
        return text
    carrier = _without_baggage(decode_trace(text))
    return carrier.get(_PARENT) or encode_trace(carrier)
