"""Queries in, results out: exactly one committed result for each query, in whatever order they are answered.

A consumer thread (:mod:`~stream_router.shell.intake`) hands query records to the loop
(:mod:`~stream_router.router`), which answers each with the cascade (:mod:`~stream_router.answering`): small model,
decision by the calibration in force, large model where it is called for. Whatever is finished goes, tick after tick,
into one transaction (:mod:`~stream_router.shell.commit`) with the offset up to which every query is done and, in
that offset's metadata, those done beyond it: a slow query holds up nobody, and a killed router neither loses nor
doubles a result. Calibration versions come by their own topic (:mod:`~stream_router.shell.calibration_feed`).
"""

from runtime.errors import AccessDenied, BrokerError, BrokerUnreachable, Fenced, TopicsUnusable
from stream_router.errors import ModelsFailed, OffsetsWentBack, RouterError

__all__ = [
    "AccessDenied",
    "BrokerError",
    "BrokerUnreachable",
    "Fenced",
    "ModelsFailed",
    "OffsetsWentBack",
    "RouterError",
    "TopicsUnusable",
]
