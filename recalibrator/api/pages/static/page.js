"use strict";
// Keeps the page up to date: the server says when something changed, the page is fetched again, and the sections that
// differ are put in place of the old ones. What is open stays open, what has the focus keeps it.
const PAUSE_MS = 2000;
const live = document.getElementById("live");
let busy = false;
let again = false;

function replaceSections(next) {
  const focused = document.activeElement?.closest("section[id]")?.contains(document.activeElement) ? document.activeElement : null;
  const focus = focused?.getAttribute("href") ?? focused?.closest("details")?.id;
  for (const section of document.querySelectorAll("main section[id]")) {
    const fresh = next.getElementById(section.id);
    if (!fresh) continue;
    for (const open of section.querySelectorAll("details[open]")) {
      fresh.querySelector(`#${CSS.escape(open.id)}`)?.setAttribute("open", "");
    }
    if (section.outerHTML === fresh.outerHTML || !getSelection().isCollapsed && section.contains(getSelection().anchorNode)) continue;
    const scrolled = [...section.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
    const held = section.contains(focused);
    section.replaceWith(fresh);
    fresh.querySelectorAll(".scroll").forEach((one, place) => { one.scrollLeft = scrolled[place] ?? 0; });
    if (held && focus) {
      (fresh.querySelector(`a[href="${CSS.escape(focus)}"]`) ?? fresh.querySelector(`#${CSS.escape(focus)} summary`))?.focus({preventScroll: true});
    }
  }
  document.title = next.title;
  live.innerHTML = next.getElementById("live").innerHTML;
}

async function refresh() {
  if (busy) { again = true; return; }
  busy = true;
  try {
    const answer = await fetch(location.pathname + location.search, {headers: {Accept: "text/html"}});
    if (answer.ok) replaceSections(new DOMParser().parseFromString(await answer.text(), "text/html"));
  } catch {
    // The stream reports when the service is back.
  } finally {
    setTimeout(() => { busy = false; if (again) { again = false; refresh(); } }, PAUSE_MS);
  }
}

const source = new EventSource("/v1/stream");
source.addEventListener("changed", refresh);
source.addEventListener("open", () => { live.className = "on"; });
source.addEventListener("error", () => { live.className = "off"; });
