"""What a file is that does not hold one JSON object a line: seen by its first bytes, said in one line. Pure."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

#: Enough of a file to tell its kind; its first line may be longer.
HEAD_BYTES = 4_096

#: What every command that reads events, gold lines or examples reads.
WANTED = "wanted is one JSON object a line, in UTF-8"


class Kind(NamedTuple):
    """What a file is instead, and what makes it what is wanted."""

    name: str
    remedy: str

    def line(self, path: object) -> str:
        """Return what is said of a file of this kind."""
        return f"{path}: is {self.name}; {WANTED}: {self.remedy}"


_AS_UTF8 = "save it as UTF-8, or use iconv"
_AS_LINES = "write each row as an object, as pandas does by to_json(orient='records', lines=True)"
_BY_MAGIC: tuple[tuple[bytes, Kind], ...] = (
    # Before UTF-16, whose mark begins as that of UTF-32 does.
    (codecs.BOM_UTF32_LE, Kind("text in UTF-32", _AS_UTF8)),
    (codecs.BOM_UTF32_BE, Kind("text in UTF-32", _AS_UTF8)),
    (codecs.BOM_UTF16_LE, Kind("text in UTF-16", _AS_UTF8)),
    (codecs.BOM_UTF16_BE, Kind("text in UTF-16", _AS_UTF8)),
    (b"\x1f\x8b", Kind("compressed (gzip)", "unpack it with gunzip, or give gunzip -c FILE | … -")),
    (b"\x28\xb5\x2f\xfd", Kind("compressed (zstd)", "unpack it with zstd -d")),
    (b"BZh", Kind("compressed (bzip2)", "unpack it with bunzip2")),
    (b"\xfd7zXZ\0", Kind("compressed (xz)", "unpack it with unxz")),
    (b"PK\x03\x04", Kind("a ZIP archive or a workbook (XLSX)", "unpack it; of a workbook, " + _AS_LINES)),
    (b"PAR1", Kind("a Parquet file", _AS_LINES)),
    (b"ARROW1", Kind("an Arrow file", _AS_LINES)),
    (b"Obj\x01", Kind("an Avro file", _AS_LINES)),
    (b"SQLite format 3\0", Kind("an SQLite database", _AS_LINES)),
)
_ARRAY = Kind("one JSON array", "jq -c '.[]' FILE makes a line of each of its members")
_SPREAD = Kind("JSON spread over several lines", "jq -c . FILE puts each object on one line")
_PYTHON = Kind("what Python prints of a dict", "write each with json.dumps")
_CSV = "a table with a header ({})"
_DELIMITERS = {",": "CSV", ";": "CSV", "\t": "TSV"}
_ARRAY_OF_OBJECTS = re.compile(rb"\[\s*(\{|$)")
_NAME = re.compile(r"\"?[\w .\-]{1,64}\"?")
_OPEN_ENDS = (b"{", b"[", b",", b":")
_LEAST_COLUMNS = 2


def kind_of(head: bytes) -> Kind | None:
    r"""Return what a file with these first bytes is, where it is something else than one JSON object a line.

    None also where nothing is recognised: then its first bad line says more.

    Examples
    --------
    >>> kind_of(b'text,camera\ncanon 5d,5d\n').line("gold.csv").partition(";")[0]
    'gold.csv: is a table with a header (CSV)'
    >>> kind_of(b'{"text": "canon"}\n') is None
    True
    """
    for magic, kind in _BY_MAGIC:
        if head.startswith(magic):
            return kind
    if b"\0" in head[:4]:
        return Kind("text in UTF-16 or UTF-32", _AS_UTF8) if head.strip(b"\0")[:1] in {b"{", b"["} else None
    lines = head.removeprefix(codecs.BOM_UTF8).lstrip().splitlines()
    first, second = (*map(bytes.strip, lines[:2]), b"", b"")[:2]
    if _ARRAY_OF_OBJECTS.match(first):
        return _ARRAY
    if first.startswith(b"{'"):
        return _PYTHON
    if first.startswith(b"{"):
        return _SPREAD if first.endswith(_OPEN_ENDS) and second and not second.startswith(b"{") else None
    return _table(first.decode("utf-8", "replace"))


def _table(header: str) -> Kind | None:
    for delimiter, name in _DELIMITERS.items():
        names = header.split(delimiter)
        if len(names) >= _LEAST_COLUMNS and all(_NAME.fullmatch(one.strip()) for one in names):
            return Kind(_CSV.format(name), _AS_LINES)
    return None
