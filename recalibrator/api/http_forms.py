"""Forms of the page: read from same-site requests only, with the key from the form before that of the browser."""

from __future__ import annotations

import base64
from urllib.parse import parse_qsl

from starlette.requests import Request

from recalibrator.api.http_requests import read_body, require_type
from recalibrator.api.keys import require_same_site
from ucci_runtime.refusals import RequestRefused

_FORM = ("application/x-www-form-urlencoded",)
_MOST_FIELDS = 1_000
_BAD_REQUEST = 400
# The drawings carry their colours in style attributes.
_SOURCES = "default-src 'none'; img-src data:; style-src 'self' 'unsafe-inline'; script-src 'self'; connect-src 'self'"
#: Of every page that people see.
PAGE_HEADERS = {
    "Content-Security-Policy": f"{_SOURCES}; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}


async def read_form(request: Request, limit: int) -> dict[str, str]:
    """Return what a person has filled in; of a name that is given twice, the first value.

    Raises RequestRefused: 403 from another site, 415 for another media type, 413 when it is too long, 400 for too many
    fields.
    """
    require_same_site(request.headers)
    require_type(request, _FORM)
    body = await read_body(request, limit)
    try:
        pairs = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise RequestRefused(_BAD_REQUEST, "malformed_form", f"a form has at most {_MOST_FIELDS} fields") from None
    form: dict[str, str] = {}
    for name, value in pairs:
        form.setdefault(name, value)
    return form


def form_credentials(request: Request, key: str) -> dict[str, str]:
    """Return the request's headers with the key from the form in place of what the browser sent by itself."""
    headers = {name: value for name, value in request.headers.items() if name not in {"authorization", "x-api-key"}}
    if key:
        headers["authorization"] = "Basic " + base64.b64encode(b":" + key.encode()).decode()
    return headers
