// One stream says which parts of what this page shows have changed; the parts fetch themselves
// anew (hx-trigger="windlass:<part> from:body"). Nobody listens while the switch is off or the tab
// is hidden, and what was missed meanwhile is fetched at once afterwards.

const switches = () => document.querySelectorAll("[data-live]");
const outage = document.getElementById("outage");
const parts = [...new Set([...document.querySelectorAll("[data-part]")].map((part) => part.dataset.part))];
const WORDS = { on: "Live", off: "Paused", lost: "Reconnecting…", wait: "Connecting…", out: "Logged out" };
const SLOWEST = 30_000;

let source = null;
let retry = null;
let wait = 1_000;
let later = null;

const stored = () => {
  try {
    return localStorage.getItem("windlass-live") !== "off";
  } catch {
    return true;
  }
};
let wanted = stored();

function show(state) {
  for (const button of switches()) {
    button.dataset.live = state;
    button.setAttribute("aria-pressed", String(wanted));
    button.querySelector("span").textContent = WORDS[state];
    button.title = wanted ? "Pause live updates (l)" : "Resume live updates (l)";
  }
}

function refetch(names) {
  for (const name of names) document.body.dispatchEvent(new CustomEvent(`windlass:${name}`));
}

// Parts that could not be made now are asked for again, all of them together.
function again(seconds) {
  clearTimeout(later);
  later = setTimeout(() => source && refetch(parts), seconds * 1_000);
}

function reachable(yes) {
  outage.hidden = yes;
  document.body.classList.toggle("stale", !yes);
}

// The page that asks to log in hides what nobody may see any more, and leads back here.
function signedOut() {
  close();
  show("out");
  if (!justTried()) location.replace(location.pathname + location.search);
}

// A host may let pages through and refuse their streams: such a page is not loaded over and over.
function justTried() {
  try {
    const before = Number(sessionStorage.getItem("windlass-out"));
    sessionStorage.setItem("windlass-out", String(Date.now()));
    return Date.now() - before < 10_000;
  } catch {
    return true;
  }
}

function close() {
  clearTimeout(retry);
  source?.close();
  source = null;
}

function open({ missed }) {
  close();
  if (!wanted || document.hidden || parts.length === 0) return;
  const url = `${document.body.dataset.liveUrl}?parts=${encodeURIComponent(parts.join(","))}`;
  source = new EventSource(url);
  source.addEventListener("hello", () => {
    wait = 1_000;
    show("on");
    if (missed) refetch(parts);
    missed = true; // from here on, a "hello" is one after a gap
  });
  source.addEventListener("changed", (event) => refetch(event.data.split(" ")));
  source.addEventListener("down", () => reachable(false));
  source.addEventListener("up", () => {
    reachable(true);
    refetch(parts);
  });
  source.addEventListener("out", signedOut);
  source.addEventListener("error", async () => {
    if (source?.readyState !== EventSource.CLOSED) {
      show("lost");
      return; // the browser tries again by itself
    }
    close(); // it was refused: logged out, too many streams, or the server is starting
    if (await refused()) {
      signedOut();
      return;
    }
    if (source || !wanted) return; // somebody was faster
    show("lost");
    retry = setTimeout(() => open({ missed: true }), wait);
    wait = Math.min(wait * 2, SLOWEST);
  });
}

async function refused() {
  try {
    const answer = await fetch(document.body.dataset.liveUrl, { method: "HEAD", credentials: "same-origin" });
    return answer.status === 401;
  } catch {
    return false; // not reachable: the next try may be luckier
  }
}

function toggle() {
  wanted = !wanted;
  try {
    localStorage.setItem("windlass-live", wanted ? "on" : "off");
  } catch {
    // Then it holds for this page.
  }
  if (wanted) {
    show("wait");
    open({ missed: true });
  } else {
    close();
    show("off");
  }
}

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-live]")) toggle();
});
document.addEventListener("windlass:toggle-live", toggle);
document.addEventListener("htmx:response:error", (event) => {
  const answer = event.detail?.ctx?.response;
  if (answer?.status === 401) signedOut();
  if ((answer?.status === 503 || answer?.status === 429) && source) again(Number(answer.headers.get("Retry-After")) || 5);
});
// The page is about to be left: what an action deletes is not fetched again.
document.addEventListener("submit", (event) => {
  if (event.target.method === "post" && !event.defaultPrevented) close();
});
document.addEventListener("visibilitychange", () => (document.hidden ? close() : open({ missed: true })));

if (parts.length === 0) {
  for (const button of switches()) button.hidden = true;
} else {
  show(wanted ? "wait" : "off");
  open({ missed: false });
}
