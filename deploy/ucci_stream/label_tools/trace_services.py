"""Projects of tracing services as label tools: traces that people scored are tasks with annotations.

Phoenix is asked as version 20 answers, and tried against it; Langfuse by the API that its version 4 keeps, and tried
against answers as its description has them. Their own client libraries bring far more than these few calls.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import aiohttp

from recalibrator.labelling.label_tool import AnnotationKey, JsonDocument, LabelToolFailed, TaskId
from recalibrator.labelling.trace_scores import CORRECTIONS, OURS, Score, ScoredTrace, TraceLabel, TraceScoreReader
from schemas.errors import ConfigError
from schemas.event import rfc3339
from schemas.label_requested import LabelRequested

_TIMEOUT = aiohttp.ClientTimeout(total=60.0, connect=10.0)
_FAILED, _DETAIL_CHARS = 400, 300
#: Traces of one question for their annotations: their ids stand in its address.
_AT_ONCE = 50
_QUERY_ID = "ucci.query_id"

_Pairs = list[tuple[str, Any]]
_Scores = dict[str, list[Score]]


class TracingProject(ABC):
    """One project of a tracing service, a ``LabelTool`` that makes and removes no task.

    Parameters
    ----------
    name : str
        Of the scores that say right or wrong.
    memory : timedelta
        Older traces are left alone, as the join has forgotten their queries.
    """

    source = ""

    def __init__(self, url: str, project: str, name: str, memory: timedelta, authorization: str | None) -> None:
        if urlsplit(url).scheme not in {"http", "https"}:
            raise ConfigError([f"--url: {url!r} is not an address such as http://127.0.0.1:6006"])
        self.project = quote(project, safe="")
        self.reader = TraceScoreReader(self.source, self.project, name)
        #: Which query a trace is of, where no span and no score says so.
        self.query_of: Callable[[str], str | None] = lambda _: None
        self._url, self._memory, self._names = url.rstrip("/"), memory, (name, *CORRECTIONS)
        self._headers = {} if authorization is None else {"Authorization": authorization}
        self._known: dict[str, str | None] = {}

    async def tasks(self, changed_since: datetime | None) -> AsyncIterator[JsonDocument]:
        """Yield all traces with scores, and those whose last one was deleted since this process began."""
        del changed_since
        now, gone = datetime.now(UTC), dict(self._known)
        async for trace in self.scored(now - self._memory):
            gone.pop(trace.trace_id, None)
            named = (one.metadata.get("query_id") for one in trace.scores)
            query_id = next((one for one in named if isinstance(one, str)), trace.query_id)
            query_id = self._known[trace.trace_id] = query_id or self.query_of(trace.trace_id)
            yield {"trace": trace._replace(query_id=query_id), "now": now}
        for trace_id, query_id in gone.items():
            yield {"trace": ScoredTrace(trace_id, query_id, ()), "now": now}

    async def add(self, requests: Sequence[LabelRequested]) -> None:
        """Make nothing: the traces are there."""
        del requests

    async def remove(self, tasks: Sequence[TaskId]) -> None:
        """Remove nothing."""
        del tasks

    async def has(self, annotation: AnnotationKey) -> bool:
        """Return false: what the listing of a trace lacks is gone."""
        del annotation
        return False

    @abstractmethod
    def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield the traces since then that people have scored, each once and with all such scores."""

    @abstractmethod
    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write labels to their traces; one that was written before is replaced."""

    async def _pages(self, path: str, pairs: _Pairs) -> AsyncIterator[list[dict[str, Any]]]:
        cursor = None
        while True:
            document = await self._call("GET", path, [*pairs, *([("cursor", cursor)] if cursor else [])])
            yield document["data"]
            cursor = document.get("next_cursor") or document.get("meta", {}).get("cursor")
            if not cursor:
                return

    async def _call(self, method: str, path: str, pairs: _Pairs = (), content: Any = None) -> Any:  # type: ignore[assignment]
        address, name = f"{self._url}{path}?{urlencode(pairs)}", self.source.capitalize()
        try:
            async with (
                aiohttp.ClientSession(timeout=_TIMEOUT, headers=self._headers) as session,
                session.request(method, address, json=content) as answer,
            ):
                status, text = answer.status, await answer.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise LabelToolFailed(f"no answer from {name} at {self._url} ({reason}); check --url") from None
        try:
            if status < _FAILED:
                return json.loads(text or "{}")
        except ValueError:
            pass
        detail = " ".join(text.split())[:_DETAIL_CHARS]
        raise LabelToolFailed(f"{name} answered {method} {path} with {status}: {detail}; check --url and --key")


class Phoenix(TracingProject):
    """One project of Phoenix."""

    source = "phoenix"

    async def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield traces with annotations of people, on the trace or on any of its spans."""
        parts = [f"any(a.name in {list(self._names)!r} for a in span_annotations)"]
        for part in ("label", "score", "explanation"):
            parts += [f"trace_annotations[{name!r}].{part} is not None" for name in self._names]
        asked: _Pairs = [("filter", " or ".join(parts)), ("start_time", rfc3339(since)), ("limit", _AT_ONCE)]
        path = f"/v1/projects/{self.project}"
        async for page in self._pages(f"{path}/traces", [*asked, ("include_spans", "true")]):
            if not page:
                return
            spans = {span["span_id"]: one["trace_id"] for one in page for span in one["spans"] or ()}
            scores: _Scores = {one["trace_id"]: [] for one in page}
            await self._annotations(scores, f"{path}/trace_annotations", "trace_id", {one: one for one in scores})
            await self._annotations(scores, f"{path}/span_annotations", "span_id", spans)
            queries: dict[str, str] = {}
            of_traces: _Pairs = [("limit", 1_000), *(("trace_id", one) for one in scores)]
            async for some in self._pages(f"{path}/spans", of_traces):
                queries |= {one["context"]["trace_id"]: one["attributes"][_QUERY_ID] for one in some if _names(one)}
            for trace_id, found in scores.items():
                yield ScoredTrace(trace_id, queries.get(trace_id), found)

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write them in one call; an annotation with the same identifier is replaced."""
        data = [
            {"name": OURS, "annotator_kind": "HUMAN", "trace_id": one.trace_id, "identifier": one.identifier}
            | {"result": {"label": one.word, "explanation": json.dumps(one.details["entities"])}}
            | {"metadata": one.details}
            for one in labels
        ]
        await self._call("POST", "/v1/trace_annotations", content={"data": data})

    async def _annotations(self, scores: _Scores, path: str, kind: str, trace_of: Mapping[str, str]) -> None:
        names: _Pairs = [("limit", 1_000), *(("include_annotation_names", name) for name in self._names)]
        ids = list(trace_of)
        for start in range(0, len(ids), _AT_ONCE):
            async for page in self._pages(
                path, [*names, *((f"{kind}s", one) for one in ids[start : start + _AT_ONCE])]
            ):
                for one in page:
                    if one["annotator_kind"] == "HUMAN":
                        scores[trace_of[one[kind]]].append(_phoenix_score(one))


def _names(span: Mapping[str, Any]) -> bool:
    return isinstance((span.get("attributes") or {}).get(_QUERY_ID), str)


def _phoenix_score(one: Mapping[str, Any]) -> Score:
    result = one.get("result") or {}
    value = result.get("score") if result.get("label") is None else result["label"]
    author, changed_at = one.get("user_id") or one.get("identifier") or None, datetime.fromisoformat(one["updated_at"])
    return Score(one["id"], one["name"], value, result.get("explanation"), one["metadata"] or {}, author, changed_at)


class Langfuse(TracingProject):
    """The project of a pair of Langfuse's keys, ``PUBLIC:SECRET``."""

    source = "langfuse"

    def __init__(self, url: str, keys: str, name: str, memory: timedelta) -> None:
        token = base64.b64encode(keys.encode()).decode()
        super().__init__(url, keys.partition(":")[0], name, memory, f"Basic {token}")

    async def scored(self, since: datetime) -> AsyncIterator[ScoredTrace]:
        """Yield traces with scores of annotators, or sent by API, on the trace or on any of its observations."""
        scores: _Scores = defaultdict(list)
        asked: _Pairs = [("fields", "details,subject,annotation"), ("limit", 100), ("fromTimestamp", rfc3339(since))]
        for name in self._names:
            async for page in self._pages("/api/public/v3/scores", [*asked, ("name", name)]):
                for one in page:
                    subject = one.get("subject") or {}
                    trace = subject.get("id") if subject.get("kind") == "trace" else subject.get("traceId")
                    is_ours = one["id"].startswith(f"{OURS}:")
                    if trace and one["source"] != "EVAL" and not is_ours:
                        scores[trace].append(_langfuse_score(one))
        for trace, found in scores.items():
            yield ScoredTrace(trace, None, found)

    async def write(self, labels: Sequence[TraceLabel]) -> None:
        """Write one after another; a score with the same id is replaced."""
        for one in labels:
            content: dict[str, Any] = {
                "id": one.identifier,
                "traceId": one.trace_id,
                "name": OURS,
                "dataType": "CATEGORICAL",
            }
            content |= {"value": one.word, "comment": json.dumps(one.details["entities"]), "metadata": one.details}
            await self._call("POST", "/api/public/scores", content=content)

    async def has(self, annotation: AnnotationKey) -> bool:
        """Ask for it by its id: what was written a moment ago may be missing from a listing."""
        asked = [("id", unquote(annotation.annotation))]
        return bool((await self._call("GET", "/api/public/v3/scores", asked))["data"])


def _langfuse_score(one: Mapping[str, Any]) -> Score:
    comment = one["value"] if one["dataType"] in {"TEXT", "CORRECTION"} else one.get("comment")
    author, changed_at = one.get("authorUserId"), datetime.fromisoformat(one["updatedAt"])
    return Score(one["id"], one["name"], one["value"], comment, one.get("metadata") or {}, author, changed_at)
