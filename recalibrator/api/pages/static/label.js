"use strict";
// Keeps what is typed until another query is shown: a reload or a closed tab loses nothing, and a name is typed once.
const form = document.querySelector("form[data-query]");
const NAME = "labeler";
if (form) {
  const key = `label:${form.dataset.query}`;
  const inputs = [...form.querySelectorAll("input:not([type=hidden]):not([type=password]), textarea")];
  const kept = JSON.parse(localStorage.getItem(key) ?? "{}");
  for (const other of Object.keys(localStorage)) {
    if (other.startsWith("label:") && other !== key) localStorage.removeItem(other);
  }
  for (const one of inputs) {
    one.value = one.name === NAME ? one.value || localStorage.getItem(NAME) || "" : kept[one.name] ?? one.value;
  }
  form.addEventListener("input", (event) => {
    if (event.target.name === NAME) localStorage.setItem(NAME, event.target.value);
    else localStorage.setItem(key, JSON.stringify({...JSON.parse(localStorage.getItem(key) ?? "{}"), [event.target.name]: event.target.value}));
  });
}
