// The keyboard: go somewhere with g and a letter, move through rows with j and k, open with Enter,
// search with /, everything else with the palette.

let waiting = false;

const typing = (target) => target.closest?.("input, textarea, select, [contenteditable]");
const rows = () => [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));

// The row one is at is the one with the focus, which stays where it is when the table is fetched anew.
function move(step) {
  const all = rows();
  if (all.length === 0) return;
  const at = all.findIndex((row) => row.contains(document.activeElement));
  const next = at < 0 ? (step > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + step, 0), all.length - 1);
  all[next].querySelector("a").focus({ preventScroll: true });
  all[next].scrollIntoView({ block: "nearest" });
}

function go(letter) {
  document.querySelector(`.nav a[data-key="${CSS.escape(letter)}"]`)?.click();
}

function search() {
  (document.querySelector("main input[type=search]") ?? document.querySelector("main .filters input"))?.focus();
}

const KEYS = {
  j: () => move(1),
  k: () => move(-1),
  l: () => document.dispatchEvent(new CustomEvent("windlass:toggle-live")),
  "/": () => search(),
  "?": () => document.dispatchEvent(new CustomEvent("windlass:palette")),
};

document.addEventListener("windlass:next-row", () => move(1));
document.addEventListener("windlass:search", search);
document.addEventListener("keydown", (event) => {
  if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
    event.preventDefault();
    document.dispatchEvent(new CustomEvent("windlass:palette"));
    return;
  }
  if (event.metaKey || event.ctrlKey || event.altKey || typing(event.target) || document.querySelector("dialog[open]")) return;
  if (waiting) {
    waiting = false;
    go(event.key);
    return;
  }
  if (event.key === "g") {
    waiting = true;
    setTimeout(() => (waiting = false), 1_200);
    return;
  }
  if (Object.hasOwn(KEYS, event.key)) {
    event.preventDefault();
    KEYS[event.key]();
  }
});
