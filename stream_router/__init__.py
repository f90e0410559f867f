"""The router: commits exactly one result for each query, in whatever order they are answered.

A consumer thread (:mod:`~stream_router.intake`) hands query records to :mod:`~stream_router.query_loop`, which answers
each with the cascade (:mod:`~stream_router.cascade`): small model, decision by the calibration in force, large model
where it is called for. Every tick, one transaction (:mod:`~stream_router.commit`) commits the finished results with the
offset up to which every query is done and, in that offset's metadata, those done beyond it: a slow query holds up
nobody, and a killed router neither loses nor doubles a result. Calibration versions come by their own topic
(:mod:`~stream_router.calibration`).
"""

from importlib.metadata import version

from stream_router.errors import ModelsFailed, OffsetsWentBack, RouterError
from ucci_runtime.broker.errors import AccessDenied, BrokerError, BrokerUnreachable, Fenced, TopicsUnusable

__version__ = version("ucci-stream")

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
