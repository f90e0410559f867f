"""The page in a real browser, over a real running service: broker, models, two routers, recalibrator, live traffic."""

from __future__ import annotations

import json
import statistics
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect
from rich.console import Console

from research.handoff.experiment import FIELDS
from research.labelling import keys
from schemas.entities import EntityMapping, equal
from schemas.feedback import FeedbackEvent
from schemas.label_requested import LabelRequested
from schemas.routed import QueryEvent
from schemas.topics import FEEDBACK, QUERIES
from tests.support.broker import read_all, unique_prefix
from tests.support.routers import value_of
from tests.support.waiting import wait_until
from ucci_demo.recorded.traffic import load_traffic
from ucci_stream.demo.run import publish_offline
from ucci_stream.demo.scenario import PlannedQuery, Scenario, offline_set, plan_stream
from ucci_stream.demo.watch import Watcher
from ucci_stream.local.kafka_node import LocalBroker
from ucci_stream.local.stack import WORKLOAD, Stack, StackOptions

pytestmark = [pytest.mark.browser, pytest.mark.broker]

DEADLINE_S = 60.0
QUERIES_SENT = 400
PLOTS = 8
#: By keys alone, in one sitting.
LABELLED = 15


@dataclass
class Live:
    """The running service, and traffic at will."""

    stack: Stack
    watcher: Watcher
    stream: list[PlannedQuery]
    sent: int = 0

    @property
    def url(self) -> str:
        return self.stack.addresses.recalibrator

    def send(self, count: int) -> None:
        """Send the next queries of the stream; the watcher labels those that are asked for."""
        self._produce({query.query_id: query.recorded.text for query in self.stream[self.sent : self.sent + count]})
        self.sent += count

    def ask_somebody(self, count: int, which: str = "for-people") -> None:
        """Send queries that the watcher does not know, so that the labels asked for of them wait for a person."""
        self._produce({f"{which}-{place}": query.recorded.text for place, query in enumerate(self.stream[:count])})

    def _produce(self, texts: Mapping[str, str]) -> None:
        """Send these queries, and what is none."""
        producer = Producer({"bootstrap.servers": self.stack.settings.kafka["bootstrap.servers"]})
        topic = QUERIES.name(self.stack.settings.topics.prefix)
        for query_id, text in texts.items():
            event = QueryEvent(query_id=query_id, text=text, created_at=datetime.now(UTC))
            producer.produce(topic, key=query_id.encode(), value=event.to_json())
            producer.poll(0)
        producer.produce(topic, key=b"broken", value=b"{not json")
        assert producer.flush(DEADLINE_S) == 0

    def get(self, path: str, address: str = "") -> Any:
        with urllib.request.urlopen(f"{address or self.url}{path}") as answer:
            return json.load(answer)

    def open_requests(self) -> list[str]:
        """Return the queries that wait for a label, newest first."""
        return [one["query_id"] for one in self.get(f"/v1/label-requests/{WORKLOAD}")["requests"]]

    def request(self, query_id: str) -> LabelRequested:
        found = self.get(f"/v1/label-requests/{WORKLOAD}?limit=500")["requests"]
        return LabelRequested.model_validate(next(one for one in found if one["query_id"] == query_id))

    def said_by(self, labeler: str) -> dict[str, int]:
        """Return what the join has counted of one labeler."""
        found = (one for one in self.status()["labels"]["by_labeler"] if one["labeler"] == labeler)
        return dict(next(found, {"labels": 0, "skipped": 0}))

    def status(self) -> dict[str, Any]:
        return dict(self.get(f"/v1/status/{WORKLOAD}"))

    def versions(self) -> list[int]:
        """Return the versions of the history, newest first."""
        return [one["version"] for one in self.get(f"/v1/calibrations/{WORKLOAD}")["versions"]]

    def router_versions(self) -> list[int]:
        """Return the version that each router says it decides by."""
        found = (self.get("/v1/status", address) for address in self.stack.addresses.routers)
        return [one["versions"][WORKLOAD]["version"] for one in found]

    def feedback(self, labeler: str) -> list[FeedbackEvent]:
        """Return what one labeler has said on the topic."""
        settings = self.stack.settings
        records = read_all(str(settings.kafka["bootstrap.servers"]), FEEDBACK.name(settings.topics.prefix))
        return [one for one in map(FeedbackEvent.from_json, map(value_of, records)) if one.labeler == labeler]


@pytest.fixture(scope="module")
def live(chromium: Browser, broker: LocalBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The demo's stack on the session's broker, calibrated offline, with some traffic and labels behind it."""
    del chromium  # asked for first: without a browser nothing else need start
    directory: Path = tmp_path_factory.mktemp("stack")
    shares: Any = {"exploration": 0.05, "label_kept": 0.5, "label_escalated": 0.5}
    options = StackOptions(directory=directory, broker=broker.bootstrap, prefix=unique_prefix(), **shares)
    console, traffic = Console(quiet=True), load_traffic()
    scenario = Scenario(queries=4 * QUERIES_SENT, label_delay=5.0, late_share=0.0)
    stream = plan_stream(traffic, scenario)
    with Stack(options, console) as stack, Watcher(stack.settings, stream, scenario) as watcher:
        publish_offline(stack, offline_set(traffic), watcher, console)
        running = Live(stack, watcher, stream)
        # In two parts, each seen in a status of its own: a machine that answers all in one second has one cost to draw.
        for _ in range(2):
            running.send(QUERIES_SENT // 2)
            wait_until(lambda: running.status()["queries"] >= running.sent)
        wait_until(lambda: running.status()["labels"]["by_labeler"])
        yield running


@dataclass
class Visit:
    """One visitor's page, and whatever went wrong or elsewhere on it."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


Visitor = Callable[..., Visit]


@pytest.fixture
def visit(chromium: Browser, live: Live) -> Iterator[Visitor]:
    contexts: list[BrowserContext] = []

    def open_page(path: str = "/", **options: Any) -> Visit:
        context = chromium.new_context(base_url=live.url, **options)
        contexts.append(context)
        opened = Visit(context.new_page())
        opened.page.on("request", lambda request: opened.requests.append(request.url))
        opened.page.on("pageerror", lambda error: opened.complaints.append(str(error)))
        opened.page.on(
            "console",
            lambda said: opened.complaints.append(said.text) if said.type in {"error", "warning"} else None,
        )
        opened.page.goto(path)
        return opened

    yield open_page
    for context in contexts:
        context.close()


def test_page_shows_live_data_from_its_own_host(live: Live, visit: Visitor) -> None:
    visitor = visit()
    page = visitor.page

    expect(page.get_by_role("heading", level=1)).to_have_text(WORKLOAD)
    # Which worry stands first follows from the versions of this run; the page says what the status does.
    verdict = page.locator(".verdict .what")
    wait_until(lambda: verdict.text_content() == live.status()["headline"]["sentence"])
    expect(page.locator("#headline")).to_contain_text("target 0.91")
    plots = page.locator("svg[role=img]")
    expect(plots).to_have_count(PLOTS, timeout=DEADLINE_S * 1_000)
    for index in range(PLOTS):
        assert plots.nth(index).get_attribute("aria-label")
        # Lines or dots, not the note that there is nothing yet: a quick machine asks before the page has it.
        expect(plots.nth(index)).not_to_contain_text("yet", ignore_case=True, timeout=DEADLINE_S * 1_000)
        assert plots.nth(index).locator("path, polyline").count() > 0
    expect(page.locator("#labels").get_by_role("rowheader", name="bob")).to_be_visible()
    expect(page.locator("#dead-letters")).to_contain_text("not json")
    expect(page.locator("#headline")).to_contain_text("router-1")
    assert visitor.complaints == []
    assert all(url.startswith(live.url) for url in visitor.requests), visitor.requests


def test_the_page_updates_itself(live: Live, visit: Visitor) -> None:
    visitor = visit()
    page = visitor.page
    requested = page.locator("#label-queue")
    before = requested.text_content() or ""
    page.locator("#details summary").first.click()

    live.send(QUERIES_SENT)

    expect(requested).not_to_have_text(before, timeout=DEADLINE_S * 1_000)
    expect(page.locator("#details details[open]")).to_have_count(1)
    assert visitor.complaints == []


def test_a_roll_back_from_the_page_reaches_the_routers(live: Live, visit: Visitor) -> None:
    # A run of refits shows the latest few; of these an early one differs most from the one in force.
    before, wanted = live.status()["calibration_version"], live.versions()[:6][-1]
    visitor = visit(f"/workloads/{WORKLOAD}/versions")
    page = visitor.page

    folded = page.locator("details.run", has=page.locator(f"[aria-label='Roll back to version {wanted}']"))
    if folded.count():
        folded.locator("summary").first.click()
    page.get_by_role("link", name=f"Roll back to version {wanted}", exact=True).click()
    expect(page.get_by_role("table")).to_contain_text("micro-F1")
    page.get_by_label("Reason, for the record").fill("the page's test")
    page.get_by_role("button", name="Roll back").click()

    expect(page.get_by_role("status").filter(has_text="Asked for")).to_contain_text(f"roll back to version {wanted}")
    wait_until(lambda: min(live.router_versions()) > before)
    expect(page.locator("#versions")).to_contain_text(f"activate of {wanted}", timeout=DEADLINE_S * 1_000)
    assert visitor.complaints == []


def tab_onto(page: Page, wanted: Locator, key: str = "Tab") -> None:
    """Press the key until the focus is there."""
    for _ in range(150):
        page.keyboard.press(key)
        if wanted.evaluate("(one) => one === document.activeElement"):
            return
    raise AssertionError(f"the keyboard does not reach {wanted}")


@pytest.mark.parametrize("scripts", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_person_labels_by_keyboard_alone(live: Live, visit: Visitor, *, scripts: bool) -> None:
    """From the status to the form, a label, a skip and an undo without a pointer; the join counts all three."""
    labeler = f"keyboard-{scripts}"
    live.ask_somebody(40)
    wait_until(lambda: sum(name.startswith("for-people") for name in live.open_requests()) >= 3)
    visitor = visit(java_script_enabled=scripts)
    page = visitor.page

    tab_onto(page, page.locator("#labels").get_by_role("link", name="Label now"))
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Label {WORKLOAD}")
    expect(page.locator("#query")).to_be_focused()
    tab_onto(page, page.locator("#field-1"))
    page.keyboard.press("Control+A")
    page.keyboard.type("Nikon Z 99")
    tab_onto(page, page.get_by_label("Your name"))
    page.keyboard.type(labeler)
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("not in the text: Nikon Z 99")
    tab_onto(page, page.get_by_role("button", name="Save"))
    page.keyboard.press("Enter")

    said = page.get_by_role("status").filter(has_text="for-people")
    expect(said).to_contain_text("Labelled")
    wait_until(lambda: live.said_by(labeler)["labels"] == 1)
    expect(page.locator("#query")).to_be_focused()
    tab_onto(page, page.get_by_role("button", name="Skip"))
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Skipped")
    wait_until(lambda: live.said_by(labeler)["skipped"] == 1)
    expect(page.locator("#query")).to_be_focused()
    tab_onto(page, page.get_by_role("button", name="Undo"), "Shift+Tab")
    page.keyboard.press("Enter")
    expect(said).to_contain_text("Withdrawn")
    wait_until(lambda: live.said_by(labeler)["skipped"] == 2)
    # A browser reports the question as an answer of status 422.
    assert not [one for one in visitor.complaints if "422" not in one]


def test_a_label_takes_few_keys_and_reaches_the_topic(live: Live, visit: Visitor) -> None:
    """The keys that an ideal labeler needs, in a browser: each label on the topic is what is right."""
    live.ask_somebody(60, "keys")
    wait_until(lambda: sum(name.startswith("keys") for name in live.open_requests()) >= LABELLED)
    gold = {f"keys-{n}": query.recorded.gold for n, query in enumerate(live.stream[:60])}
    # A name of its own for each time that the test is run: labels stay on the topic.
    labeler = unique_prefix()
    page = visit(f"/workloads/{WORKLOAD}/label?labeler={labeler}").page
    right: dict[str, EntityMapping] = {}
    pressed = []
    while len(right) < LABELLED:
        # The page takes keys once its script has run.
        page.wait_for_load_state("domcontentloaded")
        form = page.locator("form[data-query]")
        name = form.get_attribute("data-query") or ""
        if name not in gold:
            # Of another test, or labelled by the watcher.
            page.keyboard.press("l")
            expect(form).not_to_have_attribute("data-query", name)
            continue
        right[name] = gold[name]
        for place, key in enumerate(needed := keys(live.request(name), gold[name])):
            if needed[place - 1 : place + 1] == ["Enter", "Enter"]:
                expect(page.get_by_role("alert")).to_contain_text("not in the text")
                page.wait_for_load_state("domcontentloaded")
            page.keyboard.press(key)
        pressed.append(len(needed))
        expect(page.get_by_role("status").filter(has_text=f"Labelled: {name}.")).to_be_visible()
    said = {one.query_id: one.entities for one in live.feedback(labeler)}

    assert said.keys() == right.keys()
    assert [name for name in right if not equal(said[name], right[name], FIELDS)] == []
    assert statistics.median(pressed) <= 3
    assert max(pressed) > 1, "no field was corrected: the test shows less than it says"


def test_a_key_says_that_no_answer_is_right(live: Live, visit: Visitor) -> None:
    """The verdict is on the topic, and the query is still asked about."""
    live.ask_somebody(40, "judged")
    wait_until(lambda: any(name.startswith("judged") for name in live.open_requests()))
    page = visit(f"/workloads/{WORKLOAD}/label?labeler=thumb").page
    name = page.locator("form[data-query]").get_attribute("data-query") or ""
    page.keyboard.press("w")
    expect(page.get_by_role("status").filter(has_text=f"Judged: {name}.")).to_be_visible()
    (said,) = live.feedback("thumb")

    assert (said.query_id, said.verdict, said.entities) == (name, "wrong", None)
    assert live.request(name).query_id == name


def test_what_is_half_typed_survives_a_reload(live: Live, visit: Visitor) -> None:
    """The same query is shown again, also when others have come meanwhile."""
    live.ask_somebody(40)
    wait_until(live.open_requests)
    page = visit(f"/workloads/{WORKLOAD}/label").page
    asked = page.locator("form[data-query]").get_attribute("data-query")
    page.locator("#field-1").fill("half of a na")
    page.get_by_label("Your name").fill("ann")
    known = set(live.open_requests())
    live.ask_somebody(20, "more")
    wait_until(lambda: set(live.open_requests()) - known)
    page.reload()

    assert page.locator("form[data-query]").get_attribute("data-query") == asked
    expect(page.locator("#field-1")).to_have_value("half of a na")
    expect(page.get_by_label("Your name")).to_have_value("ann")
