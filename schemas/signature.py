"""Who published a version or trial, and where: an HMAC-SHA256 over it with a key that the fit and routers share. Pure.

The digest says that a version is whole; anybody can compute one. The signature covers the same canonical bytes without
digest and signature, and the digest covers the signature too, so that whoever has no key reads signed versions as well.
Of a trial it covers mode, share and version. The shared key is bound to the cluster and then to the topic, so that
nothing signed counts on another of either.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any, Literal

from schemas.calibration import CalibrationVersion
from schemas.canonical import DIGEST_FIELD, canonical
from schemas.trial import CalibrationTrial

SIGNATURE_FIELD = "signature"

SignatureFault = Literal["unsigned", "bad_signature"]


def signed(version: CalibrationVersion, key: bytes) -> CalibrationVersion:
    """Return a sealed version with the signature that a key gives it."""
    return version.altered(signature=_signature(version.model_dump(mode="json"), key))


def signed_trial(trial: CalibrationTrial, key: bytes) -> CalibrationTrial:
    """Return a trial with the signature that a key gives to the whole of it."""
    return trial.model_copy(update={SIGNATURE_FIELD: _signature(trial.model_dump(mode="json"), key)})


def bound(key: bytes, place: str) -> bytes:
    """Return the key for what stands in one place alone: a cluster by its id, then a topic by its full name."""
    return hmac.new(key, place.encode(), sha256).digest()


def unsigned(version: CalibrationVersion) -> CalibrationVersion:
    """Return a version sealed without its signature, and without what a later release has put in it."""
    given = version.model_fields_set - {DIGEST_FIELD, SIGNATURE_FIELD}
    return CalibrationVersion.sealed(**{name: getattr(version, name) for name in given})


def signature_fault(document: Mapping[str, Any], keys: Sequence[bytes]) -> SignatureFault | None:
    """Return what is wrong with a version's or trial's signature, or None where one of the keys has given it."""
    given = document.get(SIGNATURE_FIELD)
    if not given:
        return "unsigned"
    shown = given.encode(errors="replace") if isinstance(given, str) else b""
    with suppress(ValueError):
        if any(hmac.compare_digest(_signature(document, key).encode(), shown) for key in keys):
            return None
    return "bad_signature"


def _signature(document: Mapping[str, Any], key: bytes) -> str:
    """Return the lower-case hex HMAC; ValueError where the document has no canonical form."""
    content = {name: value for name, value in document.items() if name not in (DIGEST_FIELD, SIGNATURE_FIELD)}
    return hmac.new(key, canonical(content), sha256).hexdigest()
