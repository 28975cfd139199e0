// Ticking jobs of a list: all on the page at once, how many there are, and a list that stands still
// meanwhile. Without this file the boxes and buttons are an ordinary form.

const form = () => document.querySelector("form[data-selection]");
const boxes = () => [...(form()?.querySelectorAll('input[name="job"]') ?? [])];
const ticked = () => boxes().filter((box) => box.checked).length;

function refresh() {
  const here = form();
  if (!here) return;
  const count = ticked();
  const all = here.querySelector("[data-tick-all]");
  if (all) {
    all.hidden = false;
    all.checked = count > 0 && count === boxes().length;
    all.indeterminate = count > 0 && count < boxes().length;
  }
  const words = here.querySelector("[data-ticked]");
  if (words) words.textContent = count ? `(${count})` : "";
  const waiting = here.querySelector("[data-waiting]");
  if (waiting) waiting.hidden = count === 0;
}

document.addEventListener("change", (event) => {
  if (!form()?.contains(event.target)) return;
  if (event.target.matches("[data-tick-all]")) {
    for (const box of boxes()) box.checked = event.target.checked;
  }
  if (event.target.matches('[data-tick-all], input[name="job"]') && event.target.checked) {
    form().querySelector('input[name="scope"][value="ticked"]').checked = true;
  }
  refresh();
});
// Rows must not move away under somebody who is choosing some of them.
window.addEventListener("windlass:jobs", (event) => ticked() > 0 && event.stopPropagation(), true);
document.addEventListener("htmx:after:swap", refresh);
refresh(); // the browser keeps ticks when it goes back to a page
