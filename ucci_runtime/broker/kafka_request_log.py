"""Reads from a client's own log which requests it has sent, and which were answered.

Only a transactional producer's log is read so: see :mod:`ucci_runtime.broker.unanswered`. The lines come with
``debug=protocol``. The client queues them before the call that they belong to returns, so they are all there once it is
polled after that.
"""

from __future__ import annotations

import logging
import re
from typing import Any

from ucci_runtime.broker.kafka_properties import Properties
from ucci_runtime.broker.unanswered import UnansweredRequests

_FACILITIES = frozenset({"SEND", "RECV"})
_LINE = re.compile(r"(?:\[thrd:.*?\]: )?(\S+): (Sent|Received) (\w+?)Re(?:quest|sponse) \(.*CorrId (\d+)")


class RequestLog:
    """The ``logger`` of a transactional producer: takes the lines about requests, and passes on what is for people.

    ``others``: the logger for all other lines.
    """

    def __init__(self, requests: UnansweredRequests, others: Any, least: int = logging.INFO) -> None:
        self._requests = requests
        self._others = others
        self._least = least

    def log(self, level: int, template: str, *parts: str) -> None:
        """Take one line: its facility, the client's own name, the text."""
        if str(parts[0]) not in _FACILITIES:
            if level >= self._least and self._others is not None:
                self._others.log(level, template, *parts)
            return
        found = _LINE.match(str(parts[-1]))
        if found is not None:
            connection, what, kind, number = found.groups()
            note = self._requests.sent if what == "Sent" else self._requests.answered
            note(kind, connection, int(number))


def with_request_log(properties: Properties, requests: UnansweredRequests) -> Properties:
    """Return a client's properties with its requests noted; what the user wants to debug is passed on as before."""
    wanted = str(properties.get("debug", ""))
    logger = RequestLog(requests, properties.get("logger"), logging.DEBUG if wanted else logging.INFO)
    return dict(properties) | {"debug": f"{wanted},protocol".lstrip(","), "logger": logger}
