"""Canonical bytes of a JSON object and the digest over them (RFC 8785, SHA-256)."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import rfc8785

DIGEST_FIELD = "digest"


def digest(document: Mapping[str, Any]) -> str:
    """Hash a JSON object without its own ``digest``.

    Parameters
    ----------
    document : mapping
        Plain JSON values. Numbers must be finite and integers at most 2**53 in size.

    Returns
    -------
    str
        Lower-case hex SHA-256 of the RFC 8785 form.

    Raises
    ------
    ValueError
        If a value has no canonical form.

    Examples
    --------
    >>> digest({"b": 1, "a": 2.0, "digest": "x"}) == digest({"a": 2, "b": 1})
    True
    """
    try:
        canonical = rfc8785.dumps({key: value for key, value in document.items() if key != DIGEST_FIELD})
    except rfc8785.CanonicalizationError as error:
        raise ValueError(f"has no canonical JSON form: {error}") from None
    return sha256(canonical).hexdigest()
