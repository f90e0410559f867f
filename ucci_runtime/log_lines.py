"""How a service's log lines look: on standard error, for people or for machines."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from typing import Any

import structlog

from schemas.settings import Settings
from schemas.settings_text import settings_warnings


class LogFormat(StrEnum):
    """How log lines look."""

    CONSOLE = "console"
    JSON = "json"


def configure_logging(log_format: LogFormat) -> None:
    """Send the lines of this process to standard error; called once, before anything logs."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format is LogFormat.JSON
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    trace = [structlog.processors.format_exc_info] if log_format is LogFormat.JSON else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *trace,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )


def log_settings_warnings(settings: Settings) -> None:
    """Log what an operator should look at in the settings, a line each."""
    log = structlog.get_logger()
    for warning in settings_warnings(settings):
        log.warning(warning)
