"""Tracing services over their HTTP APIs: scores of people out, labels from elsewhere back to their traces.

Phoenix is asked as version 20 answers, and tried against it; Langfuse by the API that its version 4 keeps
(``/api/public/v3/scores``), and tried against answers as its description has them. Their own client libraries bring
far more than the four calls that are needed.
"""

from __future__ import annotations

import base64
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self
from urllib.parse import quote, urlencode, urlsplit

import aiohttp

from recalibrator.labelling.label_tool import LabelToolFailed
from recalibrator.labelling.trace_scores import CORRECTIONS, OURS, Score, ScoredTrace, TraceLabel
from schemas.errors import ConfigError
from schemas.event import rfc3339

_TIMEOUT = aiohttp.ClientTimeout(total=60.0, connect=10.0)
_FAILED, _DETAIL_CHARS = 400, 300
#: Traces of one question for their annotations: their ids stand in its address.
_TRACES_AT_ONCE = 50
_MOST_ANNOTATIONS, _MOST_SPANS, _MOST_SCORES = 10_000, 1_000, 100
_QUERY_ID = "ucci.query_id"

_Pairs = list[tuple[str, Any]]


class ScoreService(Protocol):
    """One project of a tracing service; any call may raise :class:`LabelToolFailed`."""

    @property
    def source(self) -> str:
        """The service's name: ``source`` of its feedback."""

    @property
    def project(self) -> str:
        """Which project this is, without colons."""

    def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield the traces since then that people have scored, each once and with all such scores."""

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write labels to their traces; one that was written before is replaced."""

    async def has(self, score_id: str) -> bool:
        """Return whether a score that the listing lacks exists all the same."""


class _Http:
    """A session with one server; an asynchronous context manager. Raises ConfigError when the address is none."""

    def __init__(self, name: str, url: str, authorization: str | None) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ConfigError([f"--url: {url!r} is not an address such as http://127.0.0.1:6006"])
        self._name, self._url = name, url.rstrip("/")
        self._headers = {} if authorization is None else {"Authorization": authorization}
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(timeout=_TIMEOUT, headers=self._headers)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def pages(self, path: str, pairs: _Pairs, where: Sequence[str]) -> AsyncIterator[list[dict[str, Any]]]:
        """Yield the pages of a listing; ``where`` its answers hold the next one's cursor."""
        cursor = None
        while True:
            document = await self.call("GET", path, [*pairs, *([("cursor", cursor)] if cursor else [])])
            yield document["data"]
            cursor = document
            for name in where:
                cursor = (cursor or {}).get(name)
            if not cursor:
                return

    async def call(self, method: str, path: str, pairs: _Pairs | None = None, content: Any = None) -> Any:
        """Return the answer's document."""
        assert self._session is not None
        address = self._url + path + (f"?{urlencode(pairs)}" if pairs else "")
        try:
            async with self._session.request(method, address, json=content) as answer:
                status, text = answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise LabelToolFailed(f"no answer from {self._name} at {self._url} ({reason}); check --url") from None
        if status >= _FAILED:
            detail = " ".join(text.split())[:_DETAIL_CHARS]
            raise LabelToolFailed(f"{self._name} refused {method} {path} with {status}: {detail}")
        try:
            return json.loads(text) if text else {}
        except ValueError:
            raise LabelToolFailed(f"{method} {path}: {self._name}'s answer is no JSON; check --url") from None


class Phoenix(_Http):
    """One project of Phoenix. ``name``: of the annotations that say right or wrong."""

    source = "phoenix"

    def __init__(self, url: str, key: str | None, project: str, name: str) -> None:
        super().__init__("Phoenix", url, f"Bearer {key}" if key else None)
        self.project = quote(project, safe="")
        self._path, self._names = f"/v1/projects/{self.project}", (name, *CORRECTIONS)

    async def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield traces with annotations of people, on the trace or on any of its spans."""
        names = [*self._names]
        on_trace = " or ".join(
            f"trace_annotations[{name!r}].{part} is not None" for name in names for part in ("label", "score")
        )
        wanted = f"any(a.name in {names!r} for a in span_annotations) or {on_trace}"
        # Where a correction has neither label nor score it stands beside one, or in its explanation.
        wanted += "".join(f" or trace_annotations[{name!r}].explanation is not None" for name in names)
        asked: _Pairs = [("filter", wanted), ("start_time", rfc3339(since)), ("include_spans", "true")]
        asked.append(("limit", _TRACES_AT_ONCE))
        async for page in self.pages(f"{self._path}/traces", asked, ["next_cursor"]):
            traces = [one["trace_id"] for one in page]
            spans = {span["span_id"]: one["trace_id"] for one in page for span in one["spans"] or ()}
            scores: dict[str, list[Score]] = defaultdict(list)
            await self._annotations(scores, "trace", {trace: trace for trace in traces})
            await self._annotations(scores, "span", spans)
            queries = await self._queries(traces) if traces else {}
            for trace in traces:
                yield ScoredTrace(trace, queries.get(trace), scores[trace])

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write them in one call; an annotation with the same identifier is replaced."""
        data = [
            {
                "name": OURS,
                "annotator_kind": "HUMAN",
                "trace_id": one.trace_id,
                "identifier": one.identifier,
                "result": {"label": one.word, "explanation": json.dumps(one.details["entities"])},
                "metadata": one.details,
            }
            for one in labels
        ]
        await self.call("POST", "/v1/trace_annotations", content={"data": data})

    async def has(self, score_id: str) -> bool:
        """Return false: what a listing of a trace lacks is gone."""
        del score_id
        return False

    async def _annotations(self, scores: dict[str, list[Score]], kind: str, trace_of: Mapping[str, str]) -> None:
        ids = list(trace_of)
        for start in range(0, len(ids), _TRACES_AT_ONCE):
            asked: _Pairs = [(f"{kind}_ids", one) for one in ids[start : start + _TRACES_AT_ONCE]]
            asked += [("include_annotation_names", name) for name in self._names]
            asked.append(("limit", _MOST_ANNOTATIONS))
            async for page in self.pages(f"{self._path}/{kind}_annotations", asked, ["next_cursor"]):
                for one in page:
                    if one["annotator_kind"] == "HUMAN":
                        scores[trace_of[one[f"{kind}_id"]]].append(_phoenix_score(one))

    async def _queries(self, traces: Sequence[str]) -> dict[str, str]:
        asked: _Pairs = [*(("trace_id", trace) for trace in traces), ("limit", _MOST_SPANS)]
        found: dict[str, str] = {}
        async for page in self.pages(f"{self._path}/spans", asked, ["next_cursor"]):
            for span in page:
                query_id = (span.get("attributes") or {}).get(_QUERY_ID)
                if isinstance(query_id, str):
                    found[span["context"]["trace_id"]] = query_id
        return found


def _phoenix_score(one: Mapping[str, Any]) -> Score:
    result = one.get("result") or {}
    return Score(
        one["id"],
        one["name"],
        result.get("label"),
        result.get("score"),
        result.get("explanation"),
        one.get("metadata") or {},
        one.get("user_id") or one.get("identifier") or None,
        datetime.fromisoformat(one["updated_at"]),
    )


class Langfuse(_Http):
    """The project of a pair of Langfuse's keys. ``name``: of the scores that say right or wrong."""

    source = "langfuse"

    def __init__(self, url: str, public_key: str, secret_key: str, name: str) -> None:
        keys = base64.b64encode(f"{public_key}:{secret_key}".encode()).decode()
        super().__init__("Langfuse", url, f"Basic {keys}")
        self.project = quote(public_key, safe="")
        self._names = (name, *CORRECTIONS)

    async def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield traces with scores of annotators, or sent by API, on the trace or on any of its observations."""
        scores: dict[str, list[Score]] = defaultdict(list)
        for name in self._names:
            asked: _Pairs = [("name", name), ("fields", "details,subject,annotation"), ("limit", _MOST_SCORES)]
            asked.append(("fromTimestamp", rfc3339(since)))
            async for page in self.pages("/api/public/v3/scores", asked, ["meta", "cursor"]):
                for one in page:
                    subject = one.get("subject") or {}
                    trace = subject.get("id") if subject.get("kind") == "trace" else subject.get("traceId")
                    if trace and one["source"] != "EVAL":
                        scores[trace].append(_langfuse_score(one))
        for trace, found in scores.items():
            yield ScoredTrace(trace, None, found)

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write one after another; a score with the same id is replaced."""
        for one in labels:
            content = {
                "id": one.identifier,
                "traceId": one.trace_id,
                "name": OURS,
                "dataType": "CATEGORICAL",
                "value": one.word,
                "comment": json.dumps(one.details["entities"]),
                "metadata": one.details,
            }
            await self.call("POST", "/api/public/scores", content=content)

    async def has(self, score_id: str) -> bool:
        """Ask for it by its id: what was written a moment ago may be missing from a listing."""
        return bool((await self.call("GET", "/api/public/v3/scores", [("id", score_id)]))["data"])


def _langfuse_score(one: Mapping[str, Any]) -> Score:
    value, kind = one.get("value"), one["dataType"]
    is_text = kind in {"TEXT", "CORRECTION"}
    return Score(
        one["id"],
        one["name"],
        value if kind == "CATEGORICAL" else None,
        value if kind in {"NUMERIC", "BOOLEAN"} else None,
        value if is_text else one.get("comment"),
        one.get("metadata") or {},
        one.get("authorUserId"),
        datetime.fromisoformat(one["updatedAt"]),
    )
