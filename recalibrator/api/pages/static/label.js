"use strict";
// Labelling by single keys while the query has the focus, and what is half typed outlives a reload or a closed tab.
const form = document.querySelector("form[data-query]");
const NAME = "labeler";
if (form) {
  const query = document.getElementById("query"), key = `label:${form.dataset.query}`;
  const save = form.querySelector("[value=label]");
  const inputs = [...form.querySelectorAll("input:not([type=hidden]):not([type=password]), textarea")];
  const kept = JSON.parse(localStorage.getItem(key) ?? "{}");
  let sent = false;
  // A reload shows this query again, not one that has come meanwhile.
  history.replaceState(null, "", form.dataset.here);
  if (form.dataset.done) localStorage.removeItem(`label:${form.dataset.done}`);
  for (const one of inputs) {
    one.value = one.name === NAME ? one.value || localStorage.getItem(NAME) || "" : kept[one.name] ?? one.value;
  }
  form.addEventListener("input", (event) => {
    if (event.target.name === NAME) localStorage.setItem(NAME, event.target.value);
    else localStorage.setItem(key, JSON.stringify({...JSON.parse(localStorage.getItem(key) ?? "{}"), [event.target.name]: event.target.value}));
  });
  form.addEventListener("submit", () => { sent = true; });
  query.addEventListener("keydown", (event) => {
    // A key that is held down must not answer the next query as well.
    if (sent || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    const one = event.key === "Enter" ? save : document.querySelector(`[accesskey="${CSS.escape(event.key.toLowerCase())}"]`);
    if (!one) return;
    event.preventDefault();
    if (one.matches("input, textarea")) { one.focus(); one.select(); } else one.click();
  });
  form.addEventListener("keydown", (event) => {
    const one = event.target, step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (event.key === "Escape") query.focus();
    if (event.key === "Enter" && event.ctrlKey) save.click();
    if (!step || !one.dataset.choices) return;
    event.preventDefault();
    const choices = [...new Set([...JSON.parse(one.dataset.choices), ""])], at = choices.indexOf(one.value);
    one.value = choices[(at + step + choices.length) % choices.length];
    one.select();
    one.dispatchEvent(new Event("input", {bubbles: true}));
  });
}
