"""FeedbackEvent: what a labeler says about one query; may come late, twice, corrected or withdrawn."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Annotated, Literal, Self

import rfc8785
from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from schemas.entities import Entities
from schemas.event import MAX_ID_CHARS, MAX_NAME_CHARS, Event, Flag, QueryId, Timestamp

#: The highest revision that is taken. A revision outranks all lower ones. Counts of corrections and seconds stay far
#: below it; a number near the end of all integers would only serve to make every later correction stale.
MAX_REVISION = 2**31

#: What feedback from a gateway names as its source, and how its labelers begin.
GATEWAY = "gateway"


def _within_reach(value: int) -> int:
    if value > MAX_REVISION:
        raise ValueError(f"is above {MAX_REVISION}: count a labeler's corrections of a query, from 1")
    return value


#: What somebody says of the answer that was served, as a whole: that it is exact, or that it is not.
Verdict = Literal["right", "wrong"]

_NULL: JsonDict = {"type": "null"}
#: JSON Schema for clients: an event has either entities or a verdict.
_ONE_OF_BOTH: JsonDict = {
    "oneOf": [
        {"required": ["entities"], "properties": {"verdict": _NULL}},
        {"required": ["verdict"], "properties": {"verdict": {"type": "string"}, "entities": _NULL}},
    ]
}

#: Label Studio is no older; counted from here, seconds stay within the bound of revisions until 2088.
_REVISION_ONE = datetime(2020, 1, 1, tzinfo=UTC)


def revision_at(moment: datetime) -> int:
    """Return the revision of feedback given then: later feedback outranks earlier, even after a restart."""
    return max((moment - _REVISION_ONE) // timedelta(seconds=1), 1)


LabelerName = Annotated[str, Field(max_length=MAX_NAME_CHARS)]
Revision = Annotated[
    int, Field(strict=True, ge=1, json_schema_extra={"maximum": MAX_REVISION}), AfterValidator(_within_reach)
]


class FeedbackEvent(Event):
    """Gold entities of one query, by one labeler, or a verdict on the answer that was served: exactly one of the two.

    Parameters
    ----------
    labeler, source : str, optional
        Who labelled, and with which tool. Over HTTP a key names only labelers that it is bound to.
    """

    model_config = ConfigDict(json_schema_extra=_ONE_OF_BOTH)

    query_id: QueryId
    #: The gold entities; null when the labeler skipped the query. Required where there is no verdict, so that a
    #: forgotten field is not read as a skip.
    entities: Entities | None = None
    #: Instead of entities: whether the answer that was served is ``right`` as a whole, or ``wrong`` in anything. Says
    #: nothing of what would be right, and leaves a label request open.
    verdict: Annotated[Verdict | None, Field(exclude_if=lambda verdict: verdict is None)] = None

    labeler: LabelerName | None = None
    #: Defaults to the record's arrival.
    labelled_at: Timestamp | None = None

    source: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    #: Idempotency key; defaults to :meth:`identity`.
    feedback_id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)] | None = None
    #: Counts the labeler's corrections, from 1 to 2^31.
    revision: Revision = 1
    #: Withdraws the labeler's earlier feedback on this query.
    retracted: Flag = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if self.verdict is None and "entities" not in self.model_fields_set:
            message = "entities: is required and missing; send entities, null for a skip, or a verdict"
            raise PydanticCustomError("missing_field", "{message}", {"message": message, "field": "entities"})
        if self.verdict is not None and self.entities is not None:
            message = f"verdict: {self.verdict!r} is given beside entities: send one of the two"
            raise PydanticCustomError("invalid_field", "{message}", {"message": message, "field": "verdict"})
        return self

    def to_json(self) -> bytes:
        """Return the event as compact UTF-8 JSON; a verdict without entities, which would be read as a skip."""
        return self.__pydantic_serializer__.to_json(self, exclude=None if self.verdict is None else {"entities"})

    def identity(self) -> str:
        """Return the idempotency key: the given one, or a hash of what was said.

        Returns ``feedback_id``, or lower-case hex sha256 over RFC 8785 JSON of (query_id, labeler, revision, entities),
        with the verdict added to one, and ``retracted`` to a withdrawal so that it is not taken for a repetition.
        """
        if self.feedback_id is not None:
            return self.feedback_id
        said = [self.query_id, self.labeler, self.revision, self.model_dump(mode="json")["entities"]]
        if self.verdict is not None:
            said.append(self.verdict)
        if self.retracted:
            said.append("retracted")
        return sha256(rfc8785.dumps(said)).hexdigest()
