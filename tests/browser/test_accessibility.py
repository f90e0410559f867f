"""Every page in every state, light, dark and on a telephone: axe finds nothing, and the keyboard does everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.page_scenes import SCENES, served

pytestmark = pytest.mark.browser

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "phone": {"viewport": {"width": 380, "height": 780}, "is_mobile": True, "has_touch": True},
}
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
TALLEST = 4_000
"""Pixels of a page on a telephone: what is urgent must not drown."""

MOST_TABS = 200
DEADLINE_MS = 120_000


class Addresses:
    """The scenes' addresses; each is served from when it is first asked for."""

    def __init__(self, running: ExitStack) -> None:
        self._running = running
        self._known: dict[str, str] = {}

    def of(self, scene: str) -> str:
        if scene not in self._known:
            self._known[scene] = self._running.enter_context(served(SCENES[scene]))
        return self._known[scene] + SCENES[scene].path


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    with ExitStack() as running:
        yield Addresses(running)


@pytest.fixture
def page(chromium: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    look = getattr(request, "param", "light")
    context = chromium.new_context(**LOOKS[look])
    context.set_default_timeout(DEADLINE_MS)
    yield context.new_page()
    context.close()


def violations(page: Page) -> list[str]:
    """Return what axe-core finds wrong, a line for each element."""
    # Evaluated by the browser's debugger: the page's own policy lets no foreign script in.
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate(
        "(rules) => axe.run(document, {runOnly: {type: 'tag', values: rules}, resultTypes: ['violations']})",
        list(RULES),
    )
    assert len(found["passes"]) > 10, "axe has looked at nothing"
    return [
        f"{one['id']}: {' '.join(map(str, node['target']))}: {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


@pytest.mark.parametrize("page", LOOKS, indirect=True)
@pytest.mark.parametrize("scene", SCENES)
def test_axe_finds_nothing_wrong(addresses: Addresses, page: Page, scene: str) -> None:
    """With all that can be folded open: WCAG 2.2 A and AA, and axe's own good practice."""
    page.goto(addresses.of(scene))
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")

    assert violations(page) == []


def test_axe_would_find_what_is_wrong(addresses: Addresses, page: Page) -> None:
    page.goto(addresses.of("label-form"))
    page.evaluate("document.querySelector('label[for=field-1]').remove()")

    assert "label" in {line.split(":")[0] for line in violations(page)}


@pytest.mark.parametrize("page", ["phone"], indirect=True)
@pytest.mark.parametrize("scene", SCENES)
def test_a_telephone_shows_every_state_on_few_screens(addresses: Addresses, page: Page, scene: str) -> None:
    """Under 4,000 pixels tall, nothing wider than the screen, and the first sentence on the first screen."""
    page.goto(addresses.of(scene))
    width, height = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")

    assert (width, height <= TALLEST) == (380, True), height
    if page.locator(".verdict").count():
        box = page.locator(".verdict .what").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 780


def test_what_goes_on_sideways_says_so_and_scrolls_by_keyboard(addresses: Addresses, page: Page) -> None:
    """A table wider than its place is shaded at that edge, is named, and moves by the arrow keys."""
    page.set_viewport_size({"width": 480, "height": 800})
    page.goto(addresses.of("outage"))
    table = page.get_by_role("region", name="Routers")

    assert table.evaluate("(one) => one.scrollWidth > one.clientWidth")
    assert "linear-gradient" in table.evaluate("(one) => getComputedStyle(one).backgroundImage")
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(one) => one.scrollLeft > 0", arg=table.element_handle())


@pytest.mark.parametrize("scene", ["well", "workloads", "label-form", "roll-back"])
def test_the_keyboard_reaches_everything_in_sight(addresses: Addresses, page: Page, scene: str) -> None:
    """Tab goes through every link, button, field and fold once, in the order of the page, each with a visible frame."""
    page.goto(addresses.of(scene))
    wanted = page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter("
        "(one) => one.type !== 'hidden' && one.checkVisibility() && (one.type !== 'radio' || one.checked)).length"
    )
    places: list[int] = []
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        place, outline = page.evaluate(
            "[[...document.querySelectorAll('*')].indexOf(document.activeElement), "
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        if page.evaluate("document.activeElement === document.body"):
            continue
        if place in places:
            break
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")
        places.append(place)
    # A form begins at its first field, so that the way round goes over the page's end.
    first = places.index(min(places))

    assert [*places[first:], *places[:first]] == sorted(places)
    assert len(places) == wanted


def test_a_roll_back_by_keyboard_alone(addresses: Addresses, page: Page) -> None:
    """From the list of versions through the form to the note that it was asked for, without a pointer."""
    page.goto(addresses.of("well"))
    page.get_by_role("link", name="Roll back to version 9").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Roll back to version 9")
    page.get_by_label("Until the workload is unpinned").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Until the next fit replaces it")).to_be_checked()
    page.keyboard.press("Tab")
    page.keyboard.type("worse since noon")
    page.keyboard.press("Enter")

    expect(page.get_by_role("status").filter(has_text="Asked for")).to_contain_text("roll back to version 9")


def test_nothing_moves_for_people_who_asked_for_that(chromium: Browser, addresses: Addresses) -> None:
    context = chromium.new_context(reduced_motion="reduce", **LOOKS["phone"])
    page = context.new_page()
    page.goto(addresses.of("drift"))
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].map((one) => getComputedStyle(one))"
        ".filter((it) => it.animationName !== 'none' || parseFloat(it.transitionDuration) > 0 "
        "|| it.scrollBehavior === 'smooth').length"
    )
    context.close()

    assert moving == 0


def test_every_chart_says_in_words_what_it_shows(addresses: Addresses, page: Page) -> None:
    """A chart's text alternative has its numbers, not only its title; seven charts, each with words of its own."""
    page.goto(addresses.of("drift"))
    words = page.locator("svg[role=img]").evaluate_all("(all) => all.map((one) => one.getAttribute('aria-label'))")

    assert len(set(words)) == 7
    for one in words:
        assert any(character.isdigit() for character in one), one
    assert "shaded times are those of suspected drift: 01 Mar 10:00" in words[0]


def test_a_chosen_range_stays_when_the_page_updates_itself(addresses: Addresses, page: Page) -> None:
    """The range is in the address; what the script fetches again is the same range, and a link opens it elsewhere."""
    page.goto(addresses.of("well"))
    page.get_by_role("navigation", name="Time range").get_by_role("link", name="7 d").click()
    heading = page.get_by_role("heading", name="Over the last 7 days")
    expect(heading).to_be_visible()
    with page.expect_response(lambda answer: answer.request.resource_type == "fetch") as fetched:
        page.evaluate("refresh()")

    assert "range=7d" in fetched.value.url
    assert "Over the last 7 days" in fetched.value.text()
    expect(heading).to_be_visible()
