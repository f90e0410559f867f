"""``[workloads.NAME]``: one kind of query, its two models, its target, its labels and its handoff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Annotated, Literal, NamedTuple, Self, get_args
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from schemas.basis import Basis, Granularity, Handoff, basis_of
from schemas.calibration import LabelShares, Signal, Target, TargetShare
from schemas.canonical import digest
from schemas.costs import ModelCosts
from schemas.entities import MAX_NULL_CHARS, normalise
from schemas.event import DEFAULT_SIGNAL, SignalKind
from schemas.settings_section import (
    REREAD,
    BearerToken,
    Integer,
    KeyName,
    Number,
    Seconds,
    Section,
    Share,
    StrippedText,
    Visible,
    each_once,
    told_apart,
)

DetectorName = Literal[
    "agreement",
    "uncertainty_median",
    "uncertainty_tail",
    "label_residual",
    "error_given_agreement",
    "right_given_disagreement",
]
#: Those in use where a workload names none; those without labels first.
DEFAULT_DETECTORS: tuple[DetectorName, ...] = get_args(DetectorName)

#: River's detectors of a mean or a distribution that are deterministic, KSWIN by its seed.
RiverName = Literal["ADWIN", "PageHinkley", "KSWIN"]

RiverArguments = dict[str, int | float | str]


def contradictions(target: Target) -> Iterator[str]:
    """Yield what contradicts itself in a target.

    Examples
    --------
    >>> next(contradictions(Target()))
    'target promises nothing: give micro_f1, fields or cost'
    """
    if target.micro_f1 is None and target.cost is None and not target.fields:
        yield "target promises nothing: give micro_f1, fields or cost"
    quality = "micro_f1" if target.micro_f1 is not None else "fields" if target.fields else None
    if target.cost is not None and quality is not None:
        yield (
            f"target.cost and target.{quality} exclude each other: a budget buys the best micro-F1 that it can; leave "
            "one of them out (max_escalation limits the calls of the large model beside a quality)"
        )


def impossibilities(
    target: Target, fields: Sequence[str], cost: ModelCosts | None, exploration_probability: float
) -> Iterator[str]:
    """Yield what a workload cannot promise."""
    if unknown := ", ".join(name for name in target.fields if name not in fields):
        yield f"target.fields: {unknown} is not a field of the workload; give one of {', '.join(fields)}"
    if target.max_escalation is not None and target.max_escalation <= exploration_probability:
        yield (
            f"target.max_escalation {target.max_escalation:g} does not exceed sampling.exploration_probability "
            f"{exploration_probability:g}, which escalates by itself: raise the one or lower the other"
        )
    if target.cost is not None and cost is None:
        yield (
            "target.cost needs the workload's cost, as in cost = { small = 1.0, large = 3.0 }: measured from latency, "
            "the unit of the budget would change with the load"
        )
    least = None if cost is None or cost.unit != "call" else cost.small + exploration_probability * cost.large
    if target.cost is not None and least is not None and target.cost <= least:
        yield (
            f"target.cost {target.cost:g} is spent before anything escalates: the small call of every query and "
            f"exploration cost {least:g}; raise it"
        )


TEXT_PLACEHOLDER = "{text}"


class BasicCredentials(NamedTuple):
    """What a server asks for in HTTP basic authentication."""

    user: str
    password: str


class ModelEndpoint(Section):
    """One model server; a router needs both, ``small`` and ``large``."""

    #: OpenAI-compatible root, ``/v1`` included. A user and a password in it (``http://user:password@host/v1``, each
    #: percent-encoded) are sent as basic authentication and shown nowhere.
    base_url: Annotated[str, StrippedText, Field(pattern=r"^https?://[^\s]+$")]
    #: Name of the model as the server knows it.
    model: Annotated[str, StrippedText, Field(min_length=1)]
    #: Longest time for one attempt.
    timeout_s: Seconds = 10.0
    #: Requests open at this server at a time.
    max_concurrency: Annotated[Integer, Field(ge=1, le=10_000)] = 256
    #: Sent as a bearer token. White space around it, such as the line break of a mounted Secret, is left out.
    api_key: BearerToken | None = None

    @field_validator("base_url")
    @classmethod
    def _has_a_host(cls, value: str) -> str:
        if not value.isprintable():
            raise ValueError("holds a control or an invisible character: type it anew instead of pasting it")
        try:
            parts = urlsplit(value)
            host, _ = parts.hostname, parts.port
        except ValueError:
            # Its message would name what stands for the port, which may be the end of a password.
            host = None
        if not host:
            raise ValueError(
                "must be like http://host:8000/v1; in a user or password write / as %2F, : as %3A, @ as %40"
            )
        if parts.query or parts.fragment:
            raise ValueError("must end with its path, since that goes on: a key belongs in api_key, not after a ?")
        return value

    @model_validator(mode="after")
    def _one_authorization(self) -> Self:
        if self.api_key is not None and self.credentials is not None:
            raise ValueError("api_key and the user in base_url exclude each other: leave one of them out")
        return self

    @property
    def credentials(self) -> BasicCredentials | None:
        """The user and password in ``base_url``, or None."""
        parts = urlsplit(self.base_url)
        if parts.username is None and parts.password is None:
            return None
        return BasicCredentials(unquote(parts.username or ""), unquote(parts.password or ""))

    @property
    def public_url(self) -> str:
        """``base_url`` as it is asked and may be shown: without user and password."""
        parts = urlsplit(self.base_url)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


class Sampling(Section):
    """What is explored and what people are asked to label."""

    #: Share of kept queries that run the large model too, after a change; while all is quiet a version asks for less.
    #: Must not exceed either label probability.
    exploration_probability: Share = 0.03
    #: Share of queries below the threshold for which a label is requested.
    label_probability_kept: Share = 0.05
    #: Share of queries above the threshold for which a label is requested.
    label_probability_escalated: Share = 0.10

    @model_validator(mode="after")
    def _labels_both_sides(self) -> Self:
        """Refuse labels of one side alone: nothing would tell how good the answers of the other side are."""
        kept, escalated = self.label_probability_kept, self.label_probability_escalated
        if (kept == 0.0) != (escalated == 0.0):
            silent, other = ("kept", "escalated") if kept == 0.0 else ("escalated", "kept")
            raise ValueError(
                f"label_probability_{silent} is 0 while label_probability_{other} is not: no label would ever tell how "
                f"good {silent} answers are; set it above 0, or both to 0 for no labels at all"
            )
        return self

    @model_validator(mode="after")
    def _exploration_is_labelled(self) -> Self:
        lowest = min(self.label_probability_kept, self.label_probability_escalated)
        if self.exploration_probability > lowest:
            raise ValueError(
                f"exploration_probability {self.exploration_probability} exceeds a label probability ({lowest}): "
                "explored queries must be labelled; lower it or raise the label probability"
            )
        return self


class LabelAllowance(Section):
    """How many labels people give; the service decides when and where to ask for them. 0 asks for none."""

    #: Labels a day.
    per_day: Annotated[Number, Field(ge=0.0)] | None = None
    #: Labels a query, instead.
    per_queries: Share | None = None

    @model_validator(mode="after")
    def _is_one_budget(self) -> Self:
        if (self.per_day is None) == (self.per_queries is None):
            raise ValueError("give either per_day (labels a day) or per_queries (labels a query): per_day = 200")
        return self

    @property
    def at_start(self) -> float | None:
        """The share of queries to ask for before any traffic is known; None where that depends on the traffic."""
        return 0.0 if self.per_day == 0.0 else self.per_queries


class _TargetTable(Target):
    """``Target`` as a table of the file: events may carry keys of a later contract, the file may not."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)
    # Of a file every fault is named; of an event, whose sender may be hostile, the first.
    fields: dict[str, TargetShare] = Field(default_factory=dict)


class _CostTable(ModelCosts):
    """``ModelCosts`` as a table of the file."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


def _checked_by(table: type[BaseModel]) -> BeforeValidator:
    def check(value: object) -> object:
        if isinstance(value, dict):
            table.model_validate(value)
        return value

    return BeforeValidator(check)


class HandoffSettings(Section):
    """``[workloads.NAME.handoff]``: the large model goes on from what the small one was certain of."""

    #: What is handed over ends before the first token of the small model's answer whose p1 - p2 lies below it.
    margin: Annotated[Number, Field(gt=0.0, le=1.0)] = 0.9
    #: ``field`` hands over whole fields alone; ``token`` everything up to that token, which saves more and costs more
    #: quality.
    granularity: Granularity = "field"
    #: Share of escalated queries for which the large model also answers alone, unserved, so that it is known what
    #: handing over changes.
    guard_share: Share = 0.01

    @property
    def handoff(self) -> Handoff:
        """What is handed over."""
        return Handoff(margin=self.margin, granularity=self.granularity)


class WorkloadSettings(Section):
    """``[workloads.NAME]``: what one kind of query asks for, of which models, and what is promised."""

    name: Visible
    #: Text sent to both models; ``{text}`` is replaced literally by the query's text.
    prompt: Annotated[str, Field(max_length=100_000)] = TEXT_PLACEHOLDER
    #: Entities to extract.
    fields: Annotated[tuple[Visible, ...], Field(min_length=1), each_once("field"), told_apart("field")]
    #: A sentence for labelers beside each field it names: ``{ iso = "without the word ISO" }``.
    field_help: Annotated[dict[str, Annotated[str, Field(max_length=500)]], REREAD] = Field(default_factory=dict)
    #: Texts that stand for null in labels, gold lines and models' answers, compared as values are:
    #: ``["none", "n/a", "-"]``. By default a text such as ``None`` counts as a value, and is warned of.
    null_texts: Annotated[tuple[str, ...], Field(max_length=50)] = ()
    #: Which endpoint of the server is called; ``chat`` sends one user message.
    api: Literal["completions", "chat"] = "completions"
    #: ``json_schema`` has the server force the shape of the answer.
    decoding: Literal["free", "json_schema"] = "free"
    #: How the uncertainty of an answer is measured from its tokens: ``token_margin`` is 1 - mean(p1 - p2), ``entropy``
    #: the mean normalised entropy of the five most probable alternatives and the rest, ``max_probability`` 1 -
    #: mean(p1). Versions, labels and traffic of another signal do not count: after a change the workload starts cold.
    uncertainty: SignalKind = DEFAULT_SIGNAL
    #: Longest completion.
    max_tokens: Annotated[Integer, Field(ge=1, le=100_000)] = 256
    #: The two models' servers.
    small: ModelEndpoint | None = None
    large: ModelEndpoint | None = None
    #: The promise that the threshold must hold: a quality at the least cost, or the best quality that a budget buys.
    target: Annotated[Target, _checked_by(_TargetTable), REREAD]
    #: Exploration and labels.
    sampling: Annotated[Sampling, REREAD] = Sampling()
    #: A budget of labels, ``{ per_day = 200 }`` or ``{ per_queries = 0.02 }``, instead of the fixed shares that
    #: ``sampling`` asks for; 0 for a workload without labels.
    labels: Annotated[LabelAllowance | None, REREAD] = None
    #: What one call or one token of each model costs; measured from latency when left out.
    cost: Annotated[ModelCosts | None, _checked_by(_CostTable), REREAD] = None
    #: Whether the large model answers alone while the cascade would cost more than that: the small one is then asked of
    #: a drawn share of queries, which shows when the cascade pays again.
    large_only_when_dear: Annotated[bool, REREAD] = False
    #: Labelers whose answers to an audit decide. Where none is named, only somebody who gave none of the suspected
    #: labels decides.
    trusted_labelers: Annotated[tuple[KeyName, ...], REREAD] = ()
    #: Which of our drift detectors watch the workload.
    detectors: Annotated[tuple[DetectorName, ...], each_once("detector")] = DEFAULT_DETECTORS
    #: Detectors of the river library beside them, ``ADWIN``, ``PageHinkley`` or ``KSWIN``, each with the arguments that
    #: river documents: ``{ ADWIN = { delta = 0.002 } }``.
    river: dict[RiverName, RiverArguments] = Field(default_factory=dict)
    #: How g is fitted. ``isotonic`` follows whatever shape the errors have; ``platt`` is a logistic curve of two
    #: parameters, for workloads with so few labels that a shape cannot be learnt.
    calibration_map: Literal["isotonic", "platt"] = "isotonic"
    #: Has the large model go on from the part of an answer that the small one was certain of, instead of beginning
    #: anew. Small calls are streamed then. Versions and labels made under another handoff do not count: after a change
    #: the workload starts cold. Needs ``decoding = "free"``.
    handoff: HandoffSettings | None = None
    #: Has small calls streamed, as ``handoff`` does, so that results say how sure the small model was of each field.
    #: Streaming costs the router about three times the CPU time.
    field_margins: bool = False

    @field_validator("null_texts")
    @classmethod
    def _stand_for_null(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        first: dict[str, str] = {}
        for text in value:
            folded = normalise(text)
            if not folded:
                raise ValueError(f"holds the empty text {text!r}, which is null already: leave it out")
            if max(len(text), len(folded)) > MAX_NULL_CHARS:
                raise ValueError(f"holds {text[:MAX_NULL_CHARS]!r}…, of at most {MAX_NULL_CHARS} characters each")
            if folded in first:
                raise ValueError(f"names {first[folded]!r} twice, the second time as {text!r}: leave one out")
            first[folded] = text
        return value

    @field_validator("prompt")
    @classmethod
    def _holds_the_text(cls, value: str) -> str:
        if TEXT_PLACEHOLDER not in value:
            raise ValueError(f"must contain {TEXT_PLACEHOLDER}, which is replaced by the query's text")
        return value

    @model_validator(mode="after")
    def _helps_with_its_fields(self) -> Self:
        if unknown := sorted(self.field_help.keys() - set(self.fields)):
            raise ValueError(f"field_help names {', '.join(unknown)}, which is none of the fields")
        return self

    @model_validator(mode="after")
    def _two_models(self) -> Self:
        small, large = self.small, self.large
        if small is not None and large is not None and (small.base_url, small.model) == (large.base_url, large.model):
            raise ValueError(f"small and large are both {small.model} on the same server: name two different models")
        return self

    @model_validator(mode="after")
    def _may_hand_over(self) -> Self:
        if self.handoff is not None and self.decoding == "json_schema":
            raise ValueError(
                'handoff needs decoding = "free": with json_schema the server would force a whole new object behind '
                "the part that is handed over; leave handoff out, or decode freely"
            )
        return self

    @model_validator(mode="after")
    def _asks_for_labels_once(self) -> Self:
        given = [f"sampling.{name}" for name in sorted(self.sampling.model_fields_set) if name.startswith("label_")]
        if self.labels is not None and given:
            named = " and ".join(given)
            raise ValueError(f"labels and {named} both say how many labels to ask for: leave out the one or the other")
        return self

    @model_validator(mode="after")
    def _promises_what_it_can(self) -> Self:
        explored = self.sampling.exploration_probability
        faults = chain(contradictions(self.target), impossibilities(self.target, self.fields, self.cost, explored))
        if (fault := next(faults, None)) is not None:
            raise ValueError(fault)
        return self

    @cached_property
    def nulls(self) -> frozenset[str]:
        """``null_texts`` in the form in which values are compared."""
        return frozenset(map(normalise, self.null_texts))

    @property
    def label_shares(self) -> LabelShares:
        """The shares of kept and escalated queries to ask labels for while no version says otherwise."""
        fixed = LabelShares(self.sampling.label_probability_kept, self.sampling.label_probability_escalated)
        at_start = None if self.labels is None else self.labels.at_start
        return fixed if at_start is None else LabelShares(at_start, at_start)

    @property
    def fingerprint(self) -> str:
        """Hash of what a calibration rests on: prompt, fields, decoding, signal, both models' names and the target.

        Where servers listen and how long they are waited for is not part of it.
        """
        named = {"small": self.small and self.small.model, "large": self.large and self.large.model}
        kept = {"prompt", "fields", "api", "decoding", "uncertainty", "max_tokens", "target"}
        return digest(named | self.model_dump(mode="json", include=kept))

    @property
    def signal(self) -> Signal:
        """What u is measured on under these settings."""
        small_model = self.small.model if self.small else "small"
        return Signal(kind=self.uncertainty, small_model=small_model, decoding=self.decoding)

    @property
    def basis(self) -> Basis | None:
        """What the answers under these settings rest on; None where no models are named, as a recalibrator's may do."""
        if self.small is None or self.large is None:
            return None
        form = self.api, self.decoding, self.uncertainty, self.max_tokens
        return basis_of(self.prompt, self.fields, form, (self.small.model, self.large.model))

    @property
    def basis_mark(self) -> str | None:
        """What results, labels and traffic are marked with; None where no models are named."""
        basis = self.basis
        return None if basis is None else basis.mark

    @property
    def offered_handoff(self) -> Handoff | None:
        """What is handed over under these settings, unless a version has switched it off; None: nothing."""
        return None if self.handoff is None else self.handoff.handoff
