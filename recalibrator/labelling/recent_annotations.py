"""The annotations told of lately, so that a deletion, which names an annotation but no query, can take its label back.

Bounded, and of this process alone: a deletion that is not known here is found by ``ucci-stream label-studio sync``.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

from recalibrator.labelling.label_studio import AnnotationKey, annotation_of, retraction_of
from schemas.feedback import FeedbackEvent

MAX_REMEMBERED = 20_000


class RecentAnnotations:
    """The latest event of each annotation; used by one event loop.

    Parameters
    ----------
    most : int
        Annotations remembered; the one told of longest ago goes first.
    """

    def __init__(self, most: int = MAX_REMEMBERED) -> None:
        self._most = most
        self._told: OrderedDict[AnnotationKey, FeedbackEvent] = OrderedDict()

    def remember(self, event: FeedbackEvent) -> None:
        """Remember what was told of an annotation; the label itself is not kept."""
        key = annotation_of(event)
        if key is None:
            return
        known = self._told.get(key)
        if known is None or event.revision >= known.revision:
            self._told[key] = event.model_copy(update={"entities": None})
        self._told.move_to_end(key)
        if len(self._told) > self._most:
            self._told.popitem(last=False)

    def retraction(self, key: AnnotationKey, at: datetime) -> FeedbackEvent | None:
        """Return what takes a deleted annotation's label back; None where it is not known."""
        told = self._told.get(key)
        return None if told is None else retraction_of(told, key, at)

    def forget(self, event: FeedbackEvent) -> None:
        """Forget the annotation of a retraction that was told."""
        key = annotation_of(event)
        if key is not None:
            self._told.pop(key, None)
