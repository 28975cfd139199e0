// Light, dark or as the system says. In the head and before the body, so that no page flashes in
// the other colours first; the choice stays in this browser.
"use strict";

(() => {
  const root = document.documentElement;
  const stored = () => {
    try {
      return localStorage.getItem("windlass-theme") || "system";
    } catch {
      return "system"; // storage is forbidden here: the system decides
    }
  };

  const show = (theme) => {
    root.dataset.theme = theme;
    for (const button of document.querySelectorAll("[data-set-theme]")) {
      button.setAttribute("aria-pressed", String(button.dataset.setTheme === theme));
    }
    document.dispatchEvent(new CustomEvent("windlass:theme"));
  };

  root.classList.add("js");
  show(stored());
  document.addEventListener("DOMContentLoaded", () => show(stored()));
  window.addEventListener("storage", () => show(stored()));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-set-theme]");
    if (!button) return;
    try {
      localStorage.setItem("windlass-theme", button.dataset.setTheme);
    } catch {
      // Then it holds for this page.
    }
    show(button.dataset.setTheme);
  });
})();
