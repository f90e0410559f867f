"""Which field a name means that people have written into a label tool: a label, or a control. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

from schemas.entities import normalise

#: Share of characters in common above which one name may be a slip of another.
_ALIKE = 0.75
#: Longer names are compared with none: that would take long.
_LONGEST = 255
_WORD = re.compile(r"[^\W_]+")


class FieldNames:
    """The fields that names can mean. ``fields``: none where they are not known; then each name is a field."""

    def __init__(self, fields: Iterable[str] = ()) -> None:
        self.fields = tuple(dict.fromkeys(fields))
        self._by_folded: dict[str, list[str]] = {}
        for field in self.fields:
            self._by_folded.setdefault(normalise(field), []).append(field)

    def meant(self, name: str) -> str | None:
        """Return the field of a name, which may differ from it in case, white space and characters nobody sees.

        Examples
        --------
        >>> names = FieldNames(("camera", "iso"))
        >>> [names.meant(name) for name in ("camera", " ISO", "Kamera")]
        ['camera', 'iso', None]
        >>> FieldNames().meant("camera")
        'camera'
        """
        if not self.fields or name in self.fields:
            return name
        alike = self._by_folded.get(normalise(name), [])
        return alike[0] if len(alike) == 1 else None

    def slip_of(self, name: str) -> str | None:
        """Return the field that a name is nearly spelt as, or None.

        Examples
        --------
        >>> names = FieldNames(("camera", "shutter_speed"))
        >>> [names.slip_of(name) for name in ("kamera", "ShutterSpeed", "comment", "camera_quality")]
        ['camera', 'shutter_speed', None, None]
        """
        if len(name) > _LONGEST:
            return None
        spelt = _letters(name)
        rated = [(SequenceMatcher(None, spelt, _letters(field)).ratio(), field) for field in self.fields]
        return max((one for one in rated if one[0] >= _ALIKE), default=(0.0, None))[1]

    def named_in(self, name: str) -> str | None:
        """Return the field whose words all stand in a name, or None.

        Examples
        --------
        >>> names = FieldNames(("iso", "shutter_speed"))
        >>> [names.named_in(name) for name in ("iso value", "speed-of-shutter", "isolated", "speed")]
        ['iso', 'shutter_speed', None, None]
        """
        words = _words(name)
        return next((field for field in self.fields if (own := _words(field)) and own <= words), None)

    def listed(self) -> str:
        """Return the fields as one text."""
        return ", ".join(self.fields)


def _letters(name: str) -> str:
    return "".join(_WORD.findall(normalise(name)))


def _words(name: str) -> set[str]:
    return set(_WORD.findall(normalise(name)))
