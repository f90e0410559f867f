"""How much to explore: the detectors' states flow in, the exploration probability flows out.

Exploration is paid with every query and needed where outcomes have changed: there the large model's answers below the
threshold must be learnt anew. While nothing has changed, labels that age slowly still tell them.
"""

from __future__ import annotations

from collections.abc import Iterable

from schemas.status import DriftState


def exploration_now(
    most: float, states: Iterable[DriftState], labels_since_change: int | None, *, quiet_share: float, alert_labels: int
) -> float:
    """Return the exploration probability of the next version.

    Parameters
    ----------
    most : float
        As configured, in [0, 1].
    states : iterable of str
        Of all detectors.
    labels_since_change : int or None
        Labels of queries routed since the last change that was told; None when there was none.
    quiet_share : float
        Share of ``most`` while all is quiet.
    alert_labels : int
        Labels after which a change is learnt.

    Examples
    --------
    >>> [exploration_now(0.03, states, None, quiet_share=0.5, alert_labels=600) for states in (["ok"], ["suspected"])]
    [0.015, 0.03]
    >>> exploration_now(0.03, ["ok"], 599, quiet_share=0.5, alert_labels=600)
    0.03
    """
    learning = labels_since_change is not None and labels_since_change < alert_labels
    return most if learning or any(state != "ok" for state in states) else most * quiet_share
