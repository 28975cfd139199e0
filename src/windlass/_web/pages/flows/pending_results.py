"""Arguments of a blocked job, with words in the places of results that are not known yet."""

from __future__ import annotations

import msgspec

from windlass._core.flows.pending import Wanted, fill, has_pending, wanted_in
from windlass._web.pages.flows.flow_page import JobPlace

__all__ = ["name_pending_results"]


def name_pending_results(payload: bytes, place: JobPlace | None) -> bytes:
    """Return a payload for people: ``<results of import_row>`` where the results will be. A payload
    that is not as a flow stores it is returned as it is.
    """
    if place is None or not has_pending(payload):
        return payload
    try:
        return fill(payload, [_words(one, place) for one in wanted_in(payload)])
    except (msgspec.MsgspecError, ValueError, LookupError, TypeError):
        return payload  # values that are masked, or damaged


def _words(wanted: Wanted, place: JobPlace) -> str:
    if wanted.kind == "job":
        return f"<result of job {wanted.source}>"
    number = wanted.part_of(place.flow.id)
    names = {part.number: part.name for part, _ in place.row.waits_for}
    return f"<results of {names.get(number or 0, f'part {number}')}>"
