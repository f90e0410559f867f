"""The last changes of outcomes and of the mix of queries: since when, and how many labels there are since."""

from __future__ import annotations

from recalibrator.fit.codec import Kept

_FRESH_LABELS_BETWEEN_CHANGES = 200


class Change:
    """When something is believed to have changed last, and the number of labels since.

    Attributes
    ----------
    fresh : int or None
        Labels of queries routed since; None when nothing has changed.
    """

    began_us: Kept[int | None] = None
    _fresh: Kept[int] = 0

    @property
    def fresh(self) -> int | None:
        """Labels of queries routed since the change."""
        return None if self.began_us is None else self._fresh

    def on_label(self, routed_us: int) -> None:
        """Count one label that is believed."""
        self._fresh += self.began_us is not None and routed_us >= self.began_us


class OutcomeChange(Change):
    """The last change of outcomes given u; labels of queries routed before it are discounted."""

    _seen_us: Kept[int] = 0
    _by_labels: Kept[bool] = False
    _before_us: Kept[int | None] = None
    #: Whether outcomes given agreement have changed as well, by what an audit says or for want of one.
    settled: Kept[bool] = True

    def is_new(self, began_us: int) -> bool:
        """Whether an alarm reports another change: soon after the last, it is the same one seen once more."""
        return (self.began_us is None or self._fresh >= _FRESH_LABELS_BETWEEN_CHANGES) and began_us > (
            self.began_us or 0
        )

    def note(self, began_us: int, fresh: int, now_us: int, *, by_labels: bool, settled: bool) -> None:
        """Take a change in.

        Parameters
        ----------
        fresh : int
            Labels that are known of queries routed since.
        now_us : int
            When it was reported.
        by_labels : bool
            Whether labels reported it, so that it is retracted when they are found to be wrong.
        """
        self._before_us, self.settled = self.began_us, settled
        self.began_us, self._fresh, self._seen_us, self._by_labels = began_us, fresh, now_us, by_labels

    def reported_by_labels(self, since_us: int) -> bool:
        """Whether labels have reported the last change, and did so since a time."""
        return self.began_us is not None and self._by_labels and self._seen_us >= since_us

    def retract(self, since_us: int) -> bool:
        """Go back to the change before, if labels have reported the last one since a time; returns whether they had."""
        if not self.reported_by_labels(since_us):
            return False
        self.began_us, self._before_us = self._before_us, None
        return True

    def recount(self, fresh: int) -> None:
        """Set the labels since the change: some have been taken out, or are back."""
        self._fresh = fresh


class MixChange(Change):
    """The last change of the mix of queries."""

    #: Whether the one before it lies so far back that its labels have shown all they could: a mix that swings back and
    #: forth is no new one each time.
    is_lone: Kept[bool] = True

    def note(self, began_us: int, fresh: int, enough: int) -> None:
        """Take a change in, with the labels known of queries routed since, and how many show all they can."""
        self.is_lone = self.fresh is None or self.fresh >= enough
        self.began_us, self._fresh = began_us, fresh
