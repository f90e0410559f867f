"""What a caller says of an answer, as feedback: a verdict on a query that this caller, as far as is known, asked here.

Nothing else is taken here: labels move estimates, and who may give them the recalibrator's keys say.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from pydantic_core import from_json, to_json

from schemas.errors import DecodeError
from schemas.event import refuse_duplicate_keys
from schemas.feedback import GATEWAY, FeedbackEvent, revision_at
from stream_router.gateway.openai_protocol import ID_HEADER
from ucci_runtime.refusals import RequestRefused

_MOST = 20_000
_BAD_REQUEST, _NOT_FOUND, _UNPROCESSABLE = 400, 404, 422


def read_verdict(body: bytes, given_id: str | None, caller: str | None, now: datetime) -> FeedbackEvent:
    """Read the body of a request; a later verdict of one caller on one query outranks the earlier.

    ``given_id``: of the header. Raises RequestRefused: 400 or 422, naming field, value and remedy.
    """
    try:
        said = FeedbackEvent.from_json(_named(body, given_id))
    except DecodeError as error:
        status = _BAD_REQUEST if error.reason == "not_json" else _UNPROCESSABLE
        raise RequestRefused(status, error.reason, str(error), error.field) from None
    if given_id is not None and said.query_id != given_id:
        message = f"query_id: {said.query_id[:60]!r} is not {given_id[:60]!r}, which {ID_HEADER} says: send one of them"
        raise RequestRefused(_UNPROCESSABLE, "invalid_field", message, "query_id")
    if said.entities is not None or (said.verdict is None and not said.retracted):
        message = 'entities: are not taken here: send a verdict, "right" or "wrong", or labels to the recalibrator'
        raise RequestRefused(_UNPROCESSABLE, "invalid_field", message, "entities")
    labeler = GATEWAY if caller is None else f"{GATEWAY}:{caller}"
    made = {"labeler": labeler, "source": GATEWAY, "labelled_at": now, "revision": revision_at(now)}
    return said.model_copy(update=made)


def _named(body: bytes, given_id: str | None) -> bytes:
    """Return the body with the query's id from the header, where it names none itself."""
    try:
        document = from_json(body)
    except ValueError:
        return body
    refuse_duplicate_keys(body)
    if given_id is None or not isinstance(document, dict) or "query_id" in document:
        return body
    return to_json({"query_id": given_id, **document})


class RecentCallers:
    """Who asked the latest queries of this process; others, and those of other gateways, are not known."""

    def __init__(self) -> None:
        self._by_query: OrderedDict[str, str | None] = OrderedDict()

    def note(self, query_id: str, caller: str | None) -> None:
        """Note who asked a query."""
        self._by_query[query_id] = caller
        self._by_query.move_to_end(query_id)
        if len(self._by_query) > _MOST:
            self._by_query.popitem(last=False)

    def check(self, query_id: str, caller: str | None) -> None:
        """Refuse a verdict on another caller's query. Raises RequestRefused: 404."""
        if self._by_query.get(query_id, caller) != caller:
            message = f"query_id: {query_id[:60]!r} is no query of this key: send the id that came with your answer"
            raise RequestRefused(_NOT_FOUND, "unknown_query", message, "query_id")
