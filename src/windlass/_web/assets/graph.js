// The picture of a flow: zoom, drag, move from box to box, and open where the flow is. Without
// scripts it scrolls. The zoom belongs to the document, so it stays when the picture is fetched anew.

const frame = document.getElementById("graph");
const STEP = 1.25;
const LEAST = 0.02;
const MOST = 2;
const LEGIBLE = 0.7;
const FAR = 0.4; // from here on boxes show signs in place of text
let zoom = 1;

const size = () => frame.querySelector("svg").viewBox.baseVal;

function fitting() {
  const high = Number.parseFloat(getComputedStyle(frame).maxHeight) || frame.clientHeight;
  return Math.min(frame.clientWidth / size().width, high / size().height, 1);
}

// The point (x, y) of the frame stays where it is.
function zoomTo(wanted, x = frame.clientWidth / 2, y = frame.clientHeight / 2) {
  const next = Math.min(Math.max(wanted, LEAST), MOST);
  const [left, top] = [(frame.scrollLeft + x) / zoom, (frame.scrollTop + y) / zoom];
  zoom = next;
  document.documentElement.style.setProperty("--graph-zoom", String(zoom));
  document.documentElement.classList.toggle("far", zoom < FAR);
  frame.scrollLeft = left * zoom - x;
  frame.scrollTop = top * zoom - y;
}

const ZOOMS = {
  out: () => zoomTo(zoom / STEP),
  in: () => zoomTo(zoom * STEP),
  fit: () => zoomTo(fitting()),
  full: () => zoomTo(1),
};
const KEYS = { "+": "in", "=": "in", "-": "out", 0: "fit", 1: "full" };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The nearest box in a direction; what is far to the side counts double.
function neighbour(box, [right, down]) {
  const middle = (one) => {
    const place = one.getBoundingClientRect();
    return [place.left + place.width / 2, place.top + place.height / 2];
  };
  const [x, y] = middle(box);
  let [best, least] = [null, Infinity];
  for (const other of frame.querySelectorAll(".box")) {
    const [dx, dy] = middle(other).map((value, index) => value - [x, y][index]);
    const ahead = dx * right + dy * down;
    const far = ahead + 2 * Math.abs(dx * down + dy * right);
    if (ahead > 1 && far < least) [best, least] = [other, far];
  }
  return best;
}

// Opens where the flow is: at the part asked for, else the first box that failed or is active.
function show() {
  const fit = fitting();
  if (fit < 1 && fit >= LEGIBLE) zoomTo(fit);
  const box = [".here", ".failed", ".active", ""].map((state) => frame.querySelector(`.box${state}`)).find(Boolean);
  const outer = frame.getBoundingClientRect();
  const inner = box.getBoundingClientRect();
  if (inner.right > outer.right) frame.scrollLeft = inner.left - outer.left - Math.max(16, (outer.width - inner.width) / 4);
  if (inner.bottom > outer.bottom) frame.scrollTop = inner.top - outer.top - (outer.height - inner.height) / 2;
}

if (frame) {
  show();
  document.addEventListener("click", (event) => ZOOMS[event.target.closest("[data-zoom]")?.dataset.zoom]?.());
  frame.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const box = event.target.closest(".box");
    const next = box && ARROWS[event.key] && neighbour(box, ARROWS[event.key]);
    if (next) next.focus();
    else if (KEYS[event.key]) ZOOMS[KEYS[event.key]]();
    else return;
    event.preventDefault();
  });
  // A pinch on a touchpad comes as a wheel with Ctrl.
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    const outer = frame.getBoundingClientRect();
    zoomTo(zoom * Math.exp(-event.deltaY / 200), event.clientX - outer.left, event.clientY - outer.top);
  }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    if (event.pointerType !== "mouse" || event.button !== 0 || event.target.closest(".box")) return;
    if (event.offsetX > frame.clientWidth || event.offsetY > frame.clientHeight) return; // a scroll bar
    frame.setPointerCapture(event.pointerId);
    frame.classList.add("grabbed");
  });
  frame.addEventListener("pointermove", (event) => {
    if (frame.classList.contains("grabbed")) frame.scrollBy(-event.movementX, -event.movementY);
  });
  for (const end of ["pointerup", "pointercancel"]) frame.addEventListener(end, () => frame.classList.remove("grabbed"));
}
