"""Settings that are valid and probably not meant: effective settings flow in, one line for each doubt flows out."""

from __future__ import annotations

from schemas.settings import Settings


def settings_warnings(settings: Settings) -> list[str]:
    """Return what an operator should look at, a line each; nothing of it keeps a service from running.

    Examples
    --------
    >>> settings_warnings(Settings())
    []
    """
    return _voiceless_trust(settings)


def _voiceless_trust(settings: Settings) -> list[str]:
    """Return a line for each workload that trusts labelers as whom no key can speak."""
    keys = settings.recalibrator.api_keys
    # Without keys, and with one that relays, anybody may be named.
    if not keys or any("relay" in key.scopes for key in keys.values()):
        return []
    bound = {labeler for name, key in keys.items() if key.gives_feedback for labeler in key.labelers or (name,)}
    found = []
    for name, workload in settings.workloads.items():
        voiceless = [labeler for labeler in workload.trusted_labelers if labeler not in bound]
        if voiceless:
            found.append(
                f"workloads.{name}.trusted_labelers: no API key may speak as {', '.join(voiceless)}, so that nobody "
                "answers audits as them over HTTP; add them to the labelers of a key, or a key of the scope relay"
            )
    return found
