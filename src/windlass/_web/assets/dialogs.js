// A link with data-dialog opens its page as a dialog. Without this file it is a page; the form in
// it is an ordinary form either way.

const dialog = document.getElementById("dialog");
const cache = new DOMParser();

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-dialog]");
  if (event.target.closest("[data-close]")) {
    if (dialog.open) {
      event.preventDefault();
      dialog.close();
    }
    return;
  }
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return;
  event.preventDefault();
  let content = null;
  try {
    const answer = await fetch(link.href, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    if (answer.ok) content = cache.parseFromString(await answer.text(), "text/html").querySelector(".confirm");
  } catch {
    // The page itself says what is wrong.
  }
  if (!content) {
    location.assign(link.href);
    return;
  }
  dialog.replaceChildren(content);
  dialog.setAttribute("aria-labelledby", content.querySelector("h1").id);
  dialog.showModal();
  content.querySelector("input:not([type=hidden]), select, textarea")?.focus(); // what is to be filled in comes first
});

dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it
});
dialog.addEventListener("submit", (event) => {
  const button = event.submitter;
  if (button) setTimeout(() => (button.disabled = true)); // after the form has been read
});
