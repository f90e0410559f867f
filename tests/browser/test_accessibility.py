"""Every page in every state, light, dark and on a telephone: axe finds nothing, and the keyboard does everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.page_scenes import SCENES, served

pytestmark = pytest.mark.browser

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "phone": {"viewport": {"width": 380, "height": 780}, "is_mobile": True, "has_touch": True},
}
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
#: The rules to which the dark style sheet, which has other colours and nothing else, makes a difference.
OF_COLOURS = ("color-contrast", "link-in-text-block")

#: Those to which it makes a difference how wide the page is, and what is not shown for that.
OF_SPACE = ("target-size", "scrollable-region-focusable", "label", "link-name", "button-name", "empty-table-header")

#: Pixels of a page on a telephone: what is urgent must not drown.
TALLEST = 4_000

#: Pixels to which a page must shrink without scrolling sideways (WCAG 1.4.10).
NARROWEST = 320

SMALL_AND_CLOSE = """document.querySelectorAll('a').forEach((one, n) => {
    one.style.cssText = `position: fixed; top: 0; left: ${10 * n}px; width: 9px; height: 9px; overflow: hidden`;
})"""
MOST_TABS = 200
DEADLINE_MS = 120_000

Addresses = Callable[[str], str]


@pytest.fixture(scope="module")
def addresses() -> Iterator[Addresses]:
    """The scenes' addresses; each is served from when it is first asked for."""
    with ExitStack() as running:
        yield cache(lambda scene: running.enter_context(served(SCENES[scene])) + SCENES[scene].path)


@pytest.fixture(scope="module")
def pages(chromium: Browser) -> Iterator[Mapping[str, Page]]:
    """One page for each look: to open one takes longer than most tests."""
    contexts = {look: chromium.new_context(**LOOKS[look]) for look in LOOKS}
    for context in contexts.values():
        context.set_default_timeout(DEADLINE_MS)
    yield {look: context.new_page() for look, context in contexts.items()}
    for context in contexts.values():
        context.close()


@pytest.fixture
def page(pages: Mapping[str, Page], request: pytest.FixtureRequest) -> Iterator[Page]:
    look = getattr(request, "param", "light")
    yield pages[look]
    pages[look].goto("about:blank")
    pages[look].set_viewport_size(LOOKS[look]["viewport"])


def violations(page: Page, only: Sequence[str] = ()) -> list[str]:
    """Return what axe-core finds wrong, a line for each element; of these rules alone, where any are given."""
    # Evaluated by the browser's debugger: the page's own policy lets no foreign script in.
    if not page.evaluate("'axe' in window"):
        page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    wanted = {"type": "rule", "values": list(only)} if only else {"type": "tag", "values": list(TAGS)}
    found = page.evaluate("(wanted) => axe.run(document, {runOnly: wanted, resultTypes: ['violations']})", wanted)
    assert only or len(found["passes"]) > 10, "axe has looked at nothing"
    return [
        f"{one['id']}: {' '.join(map(str, node['target']))}: {node['failureSummary']}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")


_IN_DARK = ("well", "outage", "drift", "quiet", "workloads", "label-form", "roll-back")


@pytest.mark.parametrize(
    ("page", "scene", "rules"),
    [
        *(("light", scene, ()) for scene in SCENES),
        # Each colour of a first sentence, and each kind of page: colours are all that changes.
        *(("dark", scene, OF_COLOURS) for scene in _IN_DARK),
        *(
            pytest.param(look, scene, (), marks=pytest.mark.thorough, id=f"{look}-{scene}-all")
            for look in ("dark", "phone")
            for scene in SCENES
        ),
    ],
    indirect=["page"],
)
def test_axe_finds_nothing_wrong(addresses: Addresses, page: Page, scene: str, rules: Sequence[str]) -> None:
    """With all that can be folded open: WCAG 2.2 A and AA, and axe's own good practice."""
    page.goto(addresses(scene))
    unfold(page)

    assert violations(page, rules) == []


@pytest.mark.parametrize(
    ("spoil", "rules", "broken"),
    [
        ("document.querySelector('label[for=field-1]').remove()", (), "label"),
        ("document.documentElement.style.setProperty('--muted', '#333')", OF_COLOURS, "color-contrast"),
        (SMALL_AND_CLOSE, OF_SPACE, "target-size"),
    ],
    ids=["markup", "colours", "space"],
)
@pytest.mark.parametrize("page", ["dark"], indirect=True)
def test_axe_would_find_what_is_wrong(
    addresses: Addresses, page: Page, spoil: str, rules: Sequence[str], broken: str
) -> None:
    page.goto(addresses("label-form"))
    page.evaluate(spoil)

    assert broken in {line.split(":")[0] for line in violations(page, rules)}


@pytest.mark.parametrize("page", ["phone"], indirect=True)
@pytest.mark.parametrize("scene", SCENES)
def test_a_telephone_shows_every_state_on_few_screens(addresses: Addresses, page: Page, scene: str) -> None:
    """Under 4,000 pixels tall, nothing wider than any screen, what is urgent at the top, room for fingers."""
    page.goto(addresses(scene))
    width, height = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.scrollHeight]")

    assert (width, height <= TALLEST) == (380, True), height
    if page.locator(".verdict").count():
        box = page.locator(".verdict .what").bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 780
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") == 380
    assert violations(page, OF_SPACE) == []
    page.set_viewport_size({"width": NARROWEST, "height": height})
    assert page.evaluate("document.documentElement.scrollWidth") == NARROWEST


def test_what_goes_on_sideways_says_so_and_scrolls_by_keyboard(addresses: Addresses, page: Page) -> None:
    """A table wider than its place is shaded at that edge, is named, and moves by the arrow keys."""
    page.set_viewport_size({"width": 480, "height": 800})
    page.goto(addresses("outage"))
    unfold(page)
    table = page.get_by_role("region", name="Routers")

    assert table.evaluate("(one) => one.scrollWidth > one.clientWidth")
    assert "linear-gradient" in table.evaluate("(one) => getComputedStyle(one).backgroundImage")
    table.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("(one) => one.scrollLeft > 0", arg=table.element_handle())


@pytest.mark.parametrize("scene", ["well", "workloads", "label-form", "roll-back"])
def test_the_keyboard_reaches_everything_in_sight(addresses: Addresses, page: Page, scene: str) -> None:
    """Tab goes through every link, button, field and fold once, in the order of the page, each with a visible frame."""
    page.goto(addresses(scene))
    wanted = page.evaluate(
        "[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex]')].filter("
        "(one) => one.type !== 'hidden' && one.tabIndex >= 0 && one.checkVisibility() && "
        "(one.type !== 'radio' || one.checked)).length"
    )
    places: list[int] = []
    reached: set[str] = set()
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        place, outline, text = page.evaluate(
            "[[...document.querySelectorAll('*')].indexOf(document.activeElement), "
            "getComputedStyle(document.activeElement).outlineStyle, document.activeElement.textContent.trim()]"
        )
        if page.evaluate("document.activeElement === document.body"):
            continue
        if place in places:
            break
        assert outline != "none", page.evaluate("document.activeElement.outerHTML")
        places.append(place)
        reached.add(text)
    # A form begins at its first field, so that the way round goes over the page's end.
    first = places.index(min(places))

    assert [*places[first:], *places[:first]] == sorted(places)
    assert len(places) == wanted
    assert scene != "well" or {"Skip to the content", "All 18 versions", "Pause", "Refit"} <= reached


def test_nothing_moves_for_people_who_asked_for_that(chromium: Browser, addresses: Addresses) -> None:
    context = chromium.new_context(reduced_motion="reduce", **LOOKS["phone"])
    page = context.new_page()
    page.goto(addresses("drift"))
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].map((one) => getComputedStyle(one))"
        ".filter((it) => it.animationName !== 'none' || parseFloat(it.transitionDuration) > 0 "
        "|| it.scrollBehavior === 'smooth').length"
    )
    context.close()

    assert moving == 0
