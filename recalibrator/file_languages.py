"""The model that names the language of a text, from its file in the extra ``what-moved``."""

from __future__ import annotations

from collections.abc import Callable

_LEAST_CONFIDENCE = 0.5


def language_identifier() -> Callable[[str], str]:
    """Return what names a text's language, ``und`` where that is uncertain; loading its model takes half a second."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    known = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=_LEAST_CONFIDENCE)
    return lambda text: str(known.classify(text)[0])
