"""The revision of feedback that names none: above what its labeler is known to have said."""

from __future__ import annotations

from collections import OrderedDict

from schemas.feedback import MAX_REVISION, FeedbackEvent

MAX_REMEMBERED = 20_000
_MOST_IDS = 4


class RecentRevisions:
    """The highest revision of each labeler's latest feedback on a query; bounded, and of this process alone."""

    def __init__(self) -> None:
        self._taken: OrderedDict[tuple[str, str | None], tuple[int, tuple[str, ...]]] = OrderedDict()

    def following(self, event: FeedbackEvent) -> int:
        """Return the revision that makes an event the newest of its labeler on its query: 1 where none is known."""
        return min(self._known(event)[0] + 1, MAX_REVISION)

    def newer(self, event: FeedbackEvent) -> int | None:
        """Return the revision that an event is too old for; None for one that may stand, or is sent again."""
        known, ids = self._known(event)
        return known if event.revision < known and event.identity() not in ids else None

    def remember(self, event: FeedbackEvent) -> None:
        """Remember an event that was taken."""
        known, ids = self._known(event)
        key = (event.query_id, event.labeler)
        self._taken[key] = (max(known, event.revision), (*ids, event.identity())[-_MOST_IDS:])
        self._taken.move_to_end(key)
        if len(self._taken) > MAX_REMEMBERED:
            self._taken.popitem(last=False)

    def _known(self, event: FeedbackEvent) -> tuple[int, tuple[str, ...]]:
        return self._taken.get((event.query_id, event.labeler), (0, ()))
