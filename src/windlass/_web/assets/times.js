// <time data-relative> says how long ago or how soon, and its title the exact instant in the
// reader's own zone. The server's clock counts, not this machine's, which may be wrong.

const offset = Date.parse(document.body.dataset.now) - Date.now() || 0;
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
const UNITS = [
  [86_400, "d", 3_600, "h"],
  [3_600, "h", 60, "m"],
  [60, "m", 1, "s"],
];

function words(seconds) {
  const span = Math.abs(seconds);
  for (const [size, unit, smaller, smallerUnit] of UNITS) {
    if (span < size) continue;
    const rest = Math.floor((span % size) / smaller);
    const small = span < size * 10 && rest ? ` ${rest} ${smallerUnit}` : "";
    return `${Math.floor(span / size)} ${unit}${small}`;
  }
  return `${Math.floor(span)} s`;
}

function refresh(root = document) {
  const now = Date.now() + offset;
  for (const time of root.querySelectorAll("time[data-relative]")) {
    const at = Date.parse(time.dateTime);
    const seconds = (now - at) / 1000;
    let text = seconds >= 0 ? `${words(seconds)} ago` : `in ${words(seconds)}`;
    if (Math.abs(seconds) < 1) text = "now";
    if (time.textContent !== text) time.textContent = text;
    if (!time.dataset.exact) {
      time.dataset.exact = "yes";
      time.title = exact.format(at);
    }
  }
}

refresh();
setInterval(() => document.hidden || refresh(), 1_000);
document.addEventListener("htmx:after:swap", () => refresh());
