// <button data-copy="#id"> copies the text of that element.

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const from = document.querySelector(button.dataset.copy);
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(from.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(from); // not over plain http: the reader copies it by hand
    button.textContent = "Selected";
  }
  setTimeout(() => (button.textContent = label), 1_500);
});
