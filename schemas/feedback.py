"""FeedbackEvent: what a labeler says about one query; may come late, twice, corrected or withdrawn."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

import rfc8785
from pydantic import Field

from schemas.entities import Entities
from schemas.event import MAX_ID_CHARS, MAX_NAME_CHARS, Event, Flag, Ordinal, QueryId, Timestamp

LabelerName = Annotated[str, Field(max_length=MAX_NAME_CHARS)]


class FeedbackEvent(Event):
    """Gold entities of one query, by one labeler.

    Parameters
    ----------
    query_id : str
    entities : dict or None
        The gold entities; null when the labeler skipped the query. Required, so that a forgotten field is not
        read as a skip.
    labeler, source : str, optional
        Who labelled, and with which tool.
    labelled_at : datetime, optional
        Defaults to the record's arrival.
    feedback_id : str, optional
        Idempotency key; defaults to :meth:`identity`.
    revision : int, optional
        Counts the labeler's corrections, from 1.
    retracted : bool, optional
        Withdraws the labeler's earlier feedback on this query.
    """

    query_id: QueryId
    entities: Entities | None
    labeler: LabelerName | None = None
    labelled_at: Timestamp | None = None
    source: Annotated[str, Field(max_length=MAX_NAME_CHARS)] | None = None
    feedback_id: Annotated[str, Field(min_length=1, max_length=MAX_ID_CHARS)] | None = None
    revision: Ordinal = 1
    retracted: Flag = False

    def identity(self) -> str:
        """Return the idempotency key: the given one, or a hash of what was said.

        Returns
        -------
        str
            ``feedback_id``, or lower-case hex sha256 over RFC 8785 JSON of (query_id, labeler, revision,
            entities), with ``retracted`` added for a withdrawal so that it is not taken for a repetition.
        """
        if self.feedback_id is not None:
            return self.feedback_id
        said = [self.query_id, self.labeler, self.revision, self.model_dump(mode="json")["entities"]]
        if self.retracted:
            said.append("retracted")
        return sha256(rfc8785.dumps(said)).hexdigest()
