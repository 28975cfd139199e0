"""A job's place in a trace, as text: what a propagator of OpenTelemetry writes and reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["decode_trace", "encode_trace", "shown_trace"]

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
    if _BAGGAGE in carrier:
        return encode_trace({k: v for k, v in carrier.items() if k != _BAGGAGE})
    return carrier.get(_PARENT)


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
    carrier = decode_trace(text)
    carrier.pop(_BAGGAGE, None)
    return carrier.get(_PARENT) or encode_trace(carrier)
