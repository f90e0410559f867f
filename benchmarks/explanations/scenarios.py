"""What moves, in each scenario: from one query on, a share of the queries is of another kind."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.explanations.texts import Kind


@dataclass(frozen=True, slots=True)
class Scenario:
    """A shift with a known cause.

    Parameters
    ----------
    name : str
    cause : str
        The trait that must be named first; beginning with ``field:`` alone, any field will do.
    kind : str
        Of the texts that come.
    share : float
        Of the queries concerned that the shift hits.
    source : str or None
        The value of the segment ``source`` to which it is confined; the explanation must name it as well.
    forgets : str or None
        A field that answers lose.
    doubts : str or None
        A field of which the small model becomes less sure, whatever it answers.
    fails : bool
        Whether answers are invalid instead.
    slower : float
        By how much the small model's latency grows.
    sources : tuple of float or None
        Shares of ``web``, ``app``, ``api`` and ``kiosk`` after the shift.
    labels : str or None
        ``labeler``: a new one labels; ``delay``: labels come eight times later; ``wrong``: half of the answers to
        ``source`` are wrong, which nothing but labels shows.
    """

    name: str
    cause: str
    kind: Kind = "clean"
    share: float = 0.25
    source: str | None = None
    forgets: str | None = None
    doubts: str | None = None
    fails: bool = False
    slower: float = 1.0
    sources: tuple[float, float, float, float] | None = None
    labels: str | None = None


RECORDED = (
    Scenario("a quarter with typos", "words", "typos"),
    Scenario("half with typos", "words", "typos", 0.5),
    Scenario("a quarter with new names", "words", "new_names"),
    Scenario("half with new names", "words", "new_names", 0.5),
    Scenario("a quarter in capitals", "letter_case", "capitals"),
    Scenario("a tenth in capitals", "letter_case", "capitals", 0.1),
    Scenario("a quarter in German", "language", "german"),
    Scenario("a tenth in German", "language", "german", 0.1),
    Scenario("a tenth in Russian", "script", "cyrillic", 0.1),
    Scenario("a quarter of recipes", "words", "recipes"),
    Scenario("a tenth of recipes", "words", "recipes", 0.1),
)
"""What texts the models see, and what the small one answers to them."""

SYNTHETIC = (
    Scenario("cameras missing on the web", "field:camera", share=0.4, source="web", forgets="camera"),
    Scenario("lenses missing by app", "field:lens", share=0.5, source="app", forgets="lens"),
    Scenario("less sure of apertures by app", "margin:aperture", share=0.5, source="app", doubts="aperture"),
    Scenario("typos by API", "words", "typos", 1.0, source="api"),
    Scenario("capitals by app", "letter_case", "capitals", 0.5, source="app"),
    Scenario("German by app", "language", "german", 0.5, source="app"),
    Scenario("long texts on the web", "text_length", "long", 0.3, source="web"),
    Scenario("no answers by API", "field:", share=0.3, source="api", fails=True),
    Scenario("more from the API, which writes capitals", "segment:source", sources=(0.35, 0.25, 0.4, 0.0)),
    Scenario("a new source", "segment:source", sources=(0.45, 0.25, 0.15, 0.15)),
    Scenario("a slower small model", "latency", share=1.0, slower=2.5),
    Scenario("a new labeler", "labeler", labels="labeler"),
    Scenario("wrong answers on the web", "answers", share=0.0, source="web", labels="wrong"),
    Scenario("labels come later", "label_delay", labels="delay"),
)
"""Shifts confined to a segment, of the mix of segments, of a server and of labels."""

QUIET = Scenario("quiet", "", share=0.0)
