// A picture that is larger than its frame opens where the flow is: at the first box that failed or
// is active, else at its beginning. A box that is in view already moves nothing.

const frame = document.getElementById("graph");
const box = [".failed", ".active", ""].map((state) => frame?.querySelector(`.box${state}`)).find(Boolean);

if (box) {
  const outer = frame.getBoundingClientRect();
  const inner = box.getBoundingClientRect();
  if (inner.right > outer.right) frame.scrollLeft = inner.left - outer.left - Math.max(16, (outer.width - inner.width) / 4);
  if (inner.bottom > outer.bottom) frame.scrollTop = inner.top - outer.top - (outer.height - inner.height) / 2;
}
