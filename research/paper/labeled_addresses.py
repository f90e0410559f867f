"""The public set: US addresses labelled token by token, which the source archive of ``usaddress`` on PyPI carries.

The archive (MIT licence, copyright the Atlanta Journal Constitution) is fetched by name, compared with a pinned digest
and kept in the user's cache; nothing of it is in this repository. Labels follow the United States Thoroughfare,
Landmark and Postal Address Data Standard. Tokens with labels flow out, and ``{label: [value, ...]}``.
"""

from __future__ import annotations

import hashlib
import io
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as ET

from ucci_stream.local.side_environment import cache_directory

ARCHIVE = "usaddress-0.5.16.tar.gz"
MEMBER = "usaddress-0.5.16/training/labeled.xml"
SOURCE_LOCK = Path(__file__).parent / "usaddress.lock"
"""The archive by version and hash."""
BUILD_LOCK = Path(__file__).parent / "setuptools.lock"
"""pip reads an archive's metadata by running its set-up script, which needs this."""
LABELS_OF_FIELD = {
    "number": ("AddressNumber", "AddressNumberPrefix", "AddressNumberSuffix"),
    "street": (
        "StreetName",
        "StreetNamePreDirectional",
        "StreetNamePreModifier",
        "StreetNamePreType",
        "StreetNamePostDirectional",
        "StreetNamePostModifier",
        "StreetNamePostType",
        "CornerOf",
        "IntersectionSeparator",
    ),
    "unit": ("OccupancyType", "OccupancyIdentifier", "SubaddressType", "SubaddressIdentifier"),
    "box": ("USPSBoxType", "USPSBoxID", "USPSBoxGroupType", "USPSBoxGroupID"),
    "place": ("PlaceName",),
    "region": ("StateName", "ZipCode", "ZipPlus4", "CountryName"),
    "name": ("Recipient", "BuildingName", "LandmarkName"),
}
"""Pairs are of a label and a value; the table by field adds up the labels of one kind. ``NotAddress`` is no entity."""
ADDRESS_FIELDS = tuple(LABELS_OF_FIELD)
_TIMEOUT_S = 600.0


class FetchFailed(Exception):
    """The archive is not to be had; the message says why."""


@dataclass(frozen=True, slots=True)
class Address:
    """One address as its annotator cut it.

    ``tokens``, ``labels``: of one length, at least one.
    """

    tokens: tuple[str, ...]
    labels: tuple[str, ...]


def labelled_addresses() -> list[Address]:
    """Return the labelled addresses, fetching their archive the first time.

    Raises FetchFailed when no registry answers, or the archive is not the pinned one.
    """
    with tarfile.open(fileobj=io.BytesIO(_archive(cache_directory() / ARCHIVE)), mode="r:gz") as archive:
        member = archive.extractfile(MEMBER)
        assert member is not None, f"{MEMBER} is a file of the pinned archive"
        return parse(member.read())


def parse(document: bytes) -> list[Address]:
    """Return the addresses of one document, each text once: of equal texts the first counts.

    ``document``: XML: an element for each address, in it an element for each token, named by its label.
    """
    found: dict[str, Address] = {}
    for element in ET.fromstring(document):
        pairs = [((token.text or "").strip(), token.tag) for token in element]
        tokens, labels = zip(*((text, label) for text, label in pairs if text), strict=True)
        found.setdefault(" ".join(tokens).casefold(), Address(tokens, labels))
    return list(found.values())


def entities(tokens: Sequence[str], labels: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each label: tokens of one label in a row are one value, without the punctuation about it.

    Examples
    --------
    >>> entities(["12", "Oak", "Hill", "Road,"], ["AddressNumber", "StreetName", "StreetName", "StreetNamePostType"])
    {'AddressNumber': ['12'], 'StreetName': ['Oak Hill'], 'StreetNamePostType': ['Road']}
    """
    found: dict[str, list[str]] = {}
    for label, run in groupby(zip(tokens, labels, strict=True), key=lambda pair: pair[1]):
        found.setdefault(label, []).append(" ".join(token for token, _ in run).strip(" ,;"))
    return found


def _archive(path: Path) -> bytes:
    """Return the archive as pinned, from the cache where it is whole there."""
    if not (path.exists() and _is_pinned(path.read_bytes())):
        with tempfile.TemporaryDirectory() as folder:
            _download(Path(folder))
            fetched = (Path(folder) / ARCHIVE).read_bytes()
        if not _is_pinned(fetched):
            raise FetchFailed(f"{ARCHIVE} is not the one that {SOURCE_LOCK.name} pins; nothing was kept")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fetched)
    return path.read_bytes()


def _is_pinned(archive: bytes) -> bool:
    return hashlib.sha256(archive).hexdigest() in SOURCE_LOCK.read_text(encoding="utf-8")


def _download(folder: Path) -> None:
    home = folder / "environment"
    venv.create(home, with_pip=True)
    pip = [str(home / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    sys.stderr.write(f"fetching {ARCHIVE} (1 MB, once)\n")
    _run([*pip, "install", "--only-binary", ":all:", "--require-hashes", "-r", str(BUILD_LOCK)])
    source = ["--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--require-hashes", "-r", str(SOURCE_LOCK)]
    _run([*pip, "download", *source, "--dest", str(folder)])


def _run(argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode:
        raise FetchFailed(f"{ARCHIVE} could not be fetched: {(done.stderr or done.stdout).strip()[-600:]}")
