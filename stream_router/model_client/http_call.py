"""One attempt over HTTP, which ends in a reply or in the class of its failure. No retries, no memory.

Waits at most the endpoint's time-out and holds at most a bounded reply in memory.
"""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from schemas.json_bytes import parsed
from schemas.settings_workload import ModelEndpoint
from stream_router.errors import (
    CallError,
    ErrorReplyError,
    MalformedReplyError,
    MisconfiguredError,
    OverloadedError,
    RefusedError,
    TimedOutError,
    TransientError,
    UnreachableError,
)
from stream_router.model_client.error_body import complaint_of
from stream_router.model_client.reply import StreamedReply, read_models, read_reply
from stream_router.model_client.request import ModelRequest
from stream_router.ports import Reply
from ucci_runtime.http_proxy import proxy_use

#: Below the 5 s after which vLLM closes idle connections: else a call may meet a closing one.
KEEPALIVE_S = 4.0

_CONNECT_S = 5.0
_GREETING_S = 2.0
_BASE_REPLY_BYTES = 1_000_000
#: Of a reply with log-probabilities; vLLM 0.32 was seen to send 100 (completions) and 242 (chat).
_BYTES_A_TOKEN = 2_000

_OK = 200
_BY_STATUS: Mapping[int, type[CallError]] = {
    **dict.fromkeys((400, 413, 422), RefusedError),
    # vLLM sends 503 when its queue is full. One that shuts down does too; that it answers nobody gives it away.
    **dict.fromkeys((429, 503), OverloadedError),
    # A proxy waited in vain for the server behind it.
    **dict.fromkeys((408, 504), TimedOutError),
}
_REDIRECTS = range(300, 400)
_FORBIDDEN = frozenset({401, 403})
_MISCONFIGURED = _FORBIDDEN | {404, 405}
_ABORTED = "abort"
_SHOWN_CHARS = 200
_EVENTS = "text/event-stream"


class ModelConnection:
    """The connections to one model server."""

    def __init__(self, endpoint: ModelEndpoint, max_connections: int, max_tokens: int) -> None:
        self._base_url = endpoint.public_url
        self._timeout_s = endpoint.timeout_s
        self._max_bytes = _BASE_REPLY_BYTES + _BYTES_A_TOKEN * max_tokens
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if endpoint.api_key is not None:
            headers["Authorization"] = f"Bearer {endpoint.api_key.get_secret_value()}"
        elif endpoint.credentials is not None:
            # Not left in the address, which errors show; aiohttp's own would be Latin-1.
            pair = ":".join(endpoint.credentials).encode()
            headers["Authorization"] = f"Basic {b64encode(pair).decode()}"
        use = proxy_use(self._base_url)
        self._proxy = use.options
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=max_connections, keepalive_timeout=KEEPALIVE_S),
            # The whole call is timed by asyncio: aiohttp 3.14 loses a cancellation that comes in the moment of its own
            # total time-out, and the cancelled query goes on.
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(_CONNECT_S, self._timeout_s)),
            headers=headers | use.headers,
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def models(self, *, greets: bool = False) -> dict[str, str]:
        """Return the names of the models that the server lists, and what each is made of where it says so.

        Empty where the server offers no such list. Raises UnreachableError, TimedOutError or TransientError when
        nothing came back, and MisconfiguredError when the key is refused.

        ``greets``: wait no longer than 2 s, and see only whether somebody listens, which costs the server nothing:
        whatever the status, it is there.
        """
        timeout_s = min(_GREETING_S, self._timeout_s) if greets else self._timeout_s
        url = f"{self._base_url}/models"
        async with _translated(timeout_s), self._session.get(url, allow_redirects=False, **self._proxy) as response:
            status, body = response.status, await self._read(response)
        if status in _FORBIDDEN and not greets:
            raise MisconfiguredError(f"HTTP {status} from {url}: {_shown(body)}; check api_key")
        return read_models(body) if status == _OK else {}

    async def attempt(self, request: ModelRequest, headers: Mapping[str, str] | None = None) -> Reply:
        """Make one call. Raises RefusedError, MisconfiguredError, or TransientError of whichever kind.

        A server may also say under HTTP 200 what went wrong; that counts as the status that means the same.
        """
        try:
            status, body, streamed = await self._post(request, headers)
            if status != _OK:
                raise self._failure(request, status, f"HTTP {status}", _shown(body))
            reply = read_reply(body, request.signal) if streamed is None else streamed.reply()
        except ErrorReplyError as error:
            raise self._failure(
                request, error.status, "HTTP 200, but the server reports an error", str(error)
            ) from None
        except MalformedReplyError as error:
            raise TransientError(f"HTTP 200, but {error}") from None
        if reply.finish_reason is not None and reply.finish_reason.lower() == _ABORTED:
            raise TransientError("the server is shutting down and sent half an answer (finish_reason abort)")
        return reply

    def _failure(self, request: ModelRequest, status: int | None, what: str, words: str) -> CallError:
        """Return the error of a status, or of an error that names none."""
        if status is not None and (status in _MISCONFIGURED or status in _REDIRECTS):
            at = f"{self._base_url}{request.path}"
            return MisconfiguredError(f"{what} from {at}: {words}; check base_url, model and api_key")
        return _BY_STATUS.get(status or 0, TransientError)(f"{what}: {words}")

    async def _post(
        self, request: ModelRequest, headers: Mapping[str, str] | None
    ) -> tuple[int, bytes, StreamedReply | None]:
        """Return the status, and the body or what was streamed; a server that does not stream sends a body."""
        url = self._base_url + request.path
        async with (
            _translated(self._timeout_s),
            self._session.post(
                url, data=request.body, headers=headers, allow_redirects=False, **self._proxy
            ) as response,
        ):
            if request.streams and response.status == _OK and response.content_type == _EVENTS:
                return response.status, b"", await self._read_events(response, StreamedReply(request.signal))
            return response.status, await self._read(response), None

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        return b"".join([chunk async for chunk in self._chunks(response)])

    async def _read_events(self, response: aiohttp.ClientResponse, streamed: StreamedReply) -> StreamedReply:
        rest = b""
        async for chunk in self._chunks(response):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                streamed.take(line)
        streamed.take(rest)
        return streamed

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """Yield the body as it comes, up to the longest that is taken."""
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > self._max_bytes:
                raise TransientError(f"the reply is longer than {self._max_bytes} bytes")
            yield chunk


@asynccontextmanager
async def _translated(timeout_s: float) -> AsyncIterator[None]:
    """Bound a call in time, and raise what the library says of it as one of ours."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        raise TimedOutError(f"no answer within {timeout_s:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        kind = UnreachableError if isinstance(error, aiohttp.ClientConnectorError) else TransientError
        raise kind(f"{type(error).__name__}: {error}") from None


def _shown(body: bytes) -> str:
    """Return the server's own words, or how the body begins."""
    try:
        complaint = complaint_of(parsed(body))
    except ValueError:
        complaint = None
    if complaint is not None:
        return complaint.words
    return " ".join(body[:_SHOWN_CHARS].decode(errors="replace").split()) or "empty body"
