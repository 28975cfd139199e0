// Everything this page can do, found by typing: the links of the navigation, every action on the
// page, the theme, any job by its id, and jobs by a word in them.

const palette = document.getElementById("palette");
const input = palette.querySelector("input");
const list = palette.querySelector("ul");
// Whole, with dashes, as it is shortened (0192f3a1…9c4e07, dots or not), or its last eight digits or more.
const JOB = /^(?:[0-9a-f]{8,32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{8,}(?:…|\.{2,3})[0-9a-f]{6,})$/;
let shown = [];
let chosen = 0;

function commands() {
  const found = [];
  for (const link of document.querySelectorAll(".side > .nav a")) {
    found.push({ text: `Go to ${link.textContent.trim()}`, hint: `g ${link.dataset.key}`, run: () => link.click() });
  }
  for (const action of document.querySelectorAll("main [data-command]")) {
    found.push({ text: action.dataset.command, hint: "", run: () => action.click() });
  }
  for (const theme of document.querySelectorAll(".side > .side-end [data-set-theme]")) {
    found.push({ text: `Theme: ${theme.dataset.setTheme}`, hint: "", run: () => theme.click() });
  }
  const live = document.querySelector("[data-live]:not([hidden])");
  if (live) found.push({ text: "Pause or resume live updates", hint: "l", run: () => live.click() });
  found.push({ text: "Move through rows", hint: "j k", run: () => document.dispatchEvent(new CustomEvent("windlass:next-row")) });
  found.push({ text: "Search on this page", hint: "/", run: () => document.dispatchEvent(new CustomEvent("windlass:search")) });
  return found;
}

function choose(index) {
  chosen = Math.min(Math.max(index, 0), shown.length - 1);
  [...list.children].forEach((row, at) => row.setAttribute("aria-selected", String(at === chosen)));
  const row = list.children[chosen];
  if (row) input.setAttribute("aria-activedescendant", row.id);
  row?.scrollIntoView({ block: "nearest" });
}

function fill() {
  const text = input.value.trim().toLowerCase();
  const words = text.split(/\s+/);
  shown = commands().filter((command) => words.every((word) => command.text.toLowerCase().includes(word)));
  if (JOB.test(text)) {
    const url = `${document.body.dataset.root}/jobs/${encodeURIComponent(text)}`;
    shown.unshift({ text: `Open job ${text}`, hint: "", run: () => location.assign(url) });
  }
  if (text) {
    const url = `${document.body.dataset.root}/jobs?text=${encodeURIComponent(input.value.trim())}`;
    shown.push({ text: `Find jobs with “${input.value.trim()}”`, hint: "", run: () => location.assign(url) });
  }
  list.replaceChildren(...shown.map((command, at) => {
    const row = document.createElement("li");
    row.id = `command-${at}`;
    row.setAttribute("role", "option");
    const label = document.createElement("span");
    label.textContent = command.text;
    row.append(label);
    if (command.hint) {
      const keys = document.createElement("kbd");
      keys.textContent = command.hint;
      row.append(keys);
    }
    row.addEventListener("click", () => run(at));
    return row;
  }));
  choose(0);
}

function run(at) {
  palette.close();
  shown[at]?.run();
}

document.addEventListener("windlass:palette", () => {
  if (palette.open) return;
  input.value = "";
  palette.showModal();
  fill();
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-open-palette]")) document.dispatchEvent(new CustomEvent("windlass:palette"));
});
palette.addEventListener("click", (event) => {
  if (event.target === palette) palette.close();
});
input.addEventListener("input", fill);
input.addEventListener("keydown", (event) => {
  const steps = { ArrowDown: 1, ArrowUp: -1 };
  if (event.key in steps) {
    event.preventDefault();
    choose(chosen + steps[event.key]);
  } else if (event.key === "Enter") {
    event.preventDefault();
    run(chosen);
  }
});
