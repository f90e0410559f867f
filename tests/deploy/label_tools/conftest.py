"""A Label Studio in this process, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.scripted_label_studio import LEGACY_TOKEN, ScriptedLabelStudio, scripted_label_studio
from ucci_stream.label_tools.label_studio_client import LabelStudio


@pytest.fixture
async def server() -> AsyncIterator[ScriptedLabelStudio]:
    async with scripted_label_studio() as running:
        yield running


@pytest.fixture
def studio(server: ScriptedLabelStudio) -> LabelStudio:
    return LabelStudio(server.url, LEGACY_TOKEN)
