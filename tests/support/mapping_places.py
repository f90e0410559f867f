"""Where a model holds mappings with keys of the sender's choice, at any depth, and documents that hold one there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

Path = tuple[str | int, ...]
Schema = dict[str, Any]

#: No field of any model takes it, but free-form ones.
FAULTY: list[list[object]] = [[]]


class MappingPlace(NamedTuple):
    #: Keys and indices from the record down to it, with keys that it and its holders take.
    path: Path
    #: A key that it takes; longer ones begin with it where any text is one.
    key: str
    #: A value that it takes, null where none is easily made.
    member: object

    max_length: int | None
    #: Whether it takes any value.
    is_free_form: bool

    def document(self, members: Mapping[str, object]) -> dict[str, Any]:
        """Return a record that holds these members here, and nothing else."""
        found: Any = members
        for step in reversed(self.path):
            # What stands before it in a tuple of fixed length is faulty; nobody looks.
            found = {step: found} if isinstance(step, str) else [*[None] * step, found]
        return dict(found)

    def __str__(self) -> str:
        return ".".join(map(str, self.path))


def mapping_places(model: type[BaseModel]) -> Iterator[MappingPlace]:
    """Yield the mappings of a model, from what pydantic validates it by."""
    yield from _places(dict(model.__pydantic_core_schema__), (), {})


def _places(schema: Schema, path: Path, known: dict[str, Schema]) -> Iterator[MappingPlace]:
    if schema["type"] == "definitions":
        known |= {one["ref"]: one for one in schema["definitions"]}
    if schema["type"] == "dict":
        values, key = schema["values_schema"], _key(schema["keys_schema"])
        member = _member(values, known)
        yield MappingPlace(path, key, member, schema.get("max_length"), values["type"] == "any")
    for step, inner in _inside(schema, known):
        yield from _places(inner, (*path, *step), known)


def _inside(schema: Schema, known: dict[str, Schema]) -> Iterator[tuple[Path, Schema]]:
    """Yield the schemas within one, each with the step of the path that leads there."""
    match schema["type"]:
        case "definition-ref":
            yield (), known[schema["schema_ref"]]
        case "model-fields":
            yield from (((name,), one["schema"]) for name, one in schema["fields"].items())
        case "tuple":
            yield from (((index,), one) for index, one in enumerate(schema["items_schema"]))
        case "union":
            yield from (((), one) for one in schema["choices"])
        case "dict":
            yield (_key(schema["keys_schema"]),), schema["values_schema"]
        case _ if "schema" in schema:
            yield (), schema["schema"]


def _key(schema: Schema) -> str:
    return str(schema["expected"][0]) if schema["type"] == "literal" else "k"


_MEMBERS: dict[str, object] = {"str": "x", "dict": {}, "nullable": None}


def _member(schema: Schema, known: dict[str, Schema]) -> object:
    """Return a value of a schema, where one is easily made: null otherwise."""
    if schema["type"] == "tuple":
        return [] if "variadic_item_index" in schema else [_member(one, known) for one in schema["items_schema"]]
    if schema["type"] in _MEMBERS:
        return _MEMBERS[schema["type"]]
    return next((_member(inner, known) for step, inner in _inside(schema, known) if not step), None)
