"""What can go wrong in a recalibrator; each class says what the caller does next.

::

    RecalibratorError
    ├── BrokerError
    │   ├── RetryCall          a broker call did not finish: repeat the same call until the deadline
    │   ├── AbortTransaction   abort, then read again what it covered
    │   ├── RecreateProducer   this producer is done for: make a new one under the same transactional id
    │   ├── Fenced             another process runs under this instance id: stop, exit non-zero
    │   ├── AccessDenied       the broker refuses us: stop, exit non-zero
    │   └── BrokerUnreachable  nothing answers: at start stop, in the API answer 503
    ├── Rewind                 a transaction did not commit, or nobody saw its end: read again what is not stored
    ├── TopicsUnusable         a topic is missing or has the wrong policy: stop, exit non-zero
    ├── StateInUse             another process works on this state_dir: stop, exit non-zero
    ├── StoreDamaged           stored state cannot be read: set it aside, rebuild it from the topics
    └── Refused                one HTTP request is not served: answer with its status
"""

from __future__ import annotations

from schemas.errors import UcciError


class RecalibratorError(UcciError):
    """Root of the recalibrator's errors."""


class BrokerError(RecalibratorError):
    """A broker call failed; the subclass says what to do."""


class RetryCall(BrokerError):
    """Repeat the same call until its deadline."""


class AbortTransaction(BrokerError):
    """Abort, and read again what the transaction covered."""


class RecreateProducer(BrokerError):
    """The producer cannot go on: make a new one under the same transactional id."""


class Fenced(BrokerError):
    """Another process runs under the same instance id; this one must stop."""

    exit_code = 1


class AccessDenied(BrokerError):
    """The broker refuses these credentials, or what they ask for; waiting will not help."""

    exit_code = 1


class BrokerUnreachable(BrokerError):
    """No broker answers."""

    exit_code = 1


class Rewind(RecalibratorError):
    """A transaction did not commit, or its end was not seen; the group's offsets tell which.

    Whoever catches it forgets everything beyond what it has stored and reads again from there.
    """


class TopicsUnusable(RecalibratorError):
    """The topics on the broker are not what the recalibrator needs.

    Parameters
    ----------
    faults : tuple of str
        One line each, naming topic, property, value and remedy.
    """

    exit_code = 1

    def __init__(self, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n".join(faults))


class StateInUse(RecalibratorError):
    """Another process works on the same state directory."""

    exit_code = 1


class StoreDamaged(RecalibratorError):
    """Stored state cannot be read; it is set aside and rebuilt from the topics."""

    exit_code = 1


class Refused(RecalibratorError):
    """One HTTP request is not served.

    Parameters
    ----------
    status : int
        HTTP status code.
    code : str
        A short machine-readable word.
    message : str
        One line for people, naming the remedy.
    field : str, optional
        Dotted path of the faulty field.
    retry_after_s : int, optional
        When trying again may help.
    """

    def __init__(
        self, status: int, code: str, message: str, field: str | None = None, retry_after_s: int | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.field = field
        self.retry_after_s = retry_after_s
        super().__init__(message)
