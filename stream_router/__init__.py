"""The router: commits exactly one result for each query, in whatever order they are answered.

A consumer thread (:mod:`~stream_router.intake_thread`) hands query records to :mod:`~stream_router.query_loop`, which
answers each with the cascade (:mod:`~stream_router.cascade`): small model, decision by the calibration in force, large
model where it is called for. Every tick, one transaction (:mod:`~stream_router.commit`) commits the finished results
with the offset up to which every query is done and, in that offset's metadata, those done beyond it: a slow query holds
up nobody, and a killed router neither loses nor doubles a result. Calibration versions come by their own topic
(:mod:`~stream_router.calibration`).
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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

_HOMES = ("stream_router.errors", "ucci_runtime.broker.errors")


def __getattr__(name: str) -> Any:
    """Load an error when it is first asked for: the command must be there for signals before it loads anything."""
    for home in _HOMES if name in __all__ else ():
        if (found := getattr(import_module(home), name, None)) is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
