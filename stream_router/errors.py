"""What can go wrong in a router; each class says what the caller does next.

::

    RouterError
    ├── ModelsFailed        both models failed on this very query: dead letter, go on
    ├── RetryCall           a broker call did not finish: repeat the same call until the deadline
    ├── AbortTransaction    abort, then produce the same results again in a new transaction
    ├── Rejoin              the group moved on: abort, drop what is no longer owned, keep the rest
    ├── RecreateProducer    this producer is done for: make a new one under the same transactional id
    └── Fenced              another process runs under this instance id: stop, exit non-zero
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
