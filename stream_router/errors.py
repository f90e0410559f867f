"""What can go wrong in a router; each class says what the caller does next.

::

    RouterError
    ├── ModelsFailed        both models failed on this very query: dead letter, go on
    ├── RetryCall           a broker call did not finish: repeat the same call until the deadline
    ├── AbortTransaction    abort, then produce the same results again in a new transaction
    ├── Rejoin              the group moved on: abort, drop what is no longer owned, keep the rest
    ├── RecreateProducer    this producer is done for: make a new one under the same transactional id
    ├── Fenced              another process runs under this instance id: stop, exit non-zero
    ├── AccessDenied        the broker refuses us: stop, exit non-zero
    ├── BrokerUnreachable   nothing answers at start: stop, exit non-zero
    ├── TopicsUnusable      a topic is missing or has the wrong policy: stop, exit non-zero
    └── OffsetsWentBack     the log was cut or made anew while it was read: stop, start again
"""

from __future__ import annotations

from schemas.errors import UcciError


class RouterError(UcciError):
    """Root of the router's errors."""


class ModelsFailed(RouterError):
    """Both models failed on this query while the servers answer others.

    Parameters
    ----------
    small, large : str
        What each model's last attempt ended with.
    """

    reason = "models_failed"

    def __init__(self, small: str, large: str) -> None:
        self.small = small
        self.large = large
        super().__init__(f"small: {small}; large: {large}")


class BrokerError(RouterError):
    """A broker call failed; the subclass says what to do."""


class RetryCall(BrokerError):
    """Repeat the same call until its deadline."""


class AbortTransaction(BrokerError):
    """Abort, and produce the same results again in a new transaction."""


class Rejoin(BrokerError):
    """The consumer group moved on: abort, drop what is no longer owned, read fresh group metadata, go on."""


class RecreateProducer(BrokerError):
    """The producer cannot go on: make a new one under the same transactional id."""


class Fenced(BrokerError):
    """Another process runs under the same instance id; this one must stop."""

    exit_code = 1


class AccessDenied(BrokerError):
    """The broker refuses these credentials, or what they ask for; waiting will not help."""

    exit_code = 1


class BrokerUnreachable(BrokerError):
    """No broker answered at start."""

    exit_code = 1


class TopicsUnusable(RouterError):
    """The topics on the broker are not what the router needs.

    Parameters
    ----------
    faults : tuple of str
        One line each, naming topic, property, value and remedy.
    """

    exit_code = 1

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class OffsetsWentBack(RouterError):
    """An offset below one already delivered: the log was cut or made anew while it was read.

    Starting again is safe: the committed offset is then compared with the log as it is now.
    """

    exit_code = 1

    def __init__(self, offset: int, position: int) -> None:
        super().__init__(f"offset {offset} came after {position - 1}: the topic was cut or made anew; start again")
