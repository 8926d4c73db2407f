/* What stands written over a timeline: the peak, the budget, and the areas that have room for it. */
"use strict";
const LETTER = 7.2, LINE = 16, STEP = 8;

/* Where labels stand already. */
class Taken {
  constructor() { this.boxes = []; }
  has(left, right, top) {
    return this.boxes.some((box) => left < box.right && box.left < right
      && top < box.top + LINE && box.top < top + LINE);
  }
  add(left, right, top) { this.boxes.push({ left, right, top }); }
}

/* Places them; returns which areas have their name. */
function placeLabels(timeline) {
  const { chart, layer } = timeline, taken = new Taken();
  ["left", "top", "width", "height"].forEach((one) => { layer.style[one] = chart.over.style[one]; });
  layer.replaceChildren();
  placeTags(timeline, taken);
  return placeAreas(timeline, taken);
}
function placeTags({ chart, layer, side }, taken) {
  const wide = chart.over.clientWidth, { min, max } = chart.scales.x;
  const x = (v) => chart.valToPos(v, "x"), y = (v) => chart.valToPos(v, "y");
  const shows = (v) => v !== null && v >= min && v <= max;
  const line = R.budget ? y(R.budget) : -1;  // no tag stands on it
  const free = (left, right, top) => !taken.has(left, right, top)
    && (line <= top - 1 || line >= top + LINE + 1);
  function tag(text, at, from, style, endsThere) {
    const made = el("span", { class: "tag " + style }, layer, text), width = made.offsetWidth;
    const left = Math.max(0, Math.min(wide - width, endsThere ? at - width : at));
    const top = nearest(Math.max(0, from), (one) => free(left, left + width, one));
    made.style.cssText = `left:${left}px;top:${top}px`;
    taken.add(left, left + width, top);
  }
  if (shows(side.gradientX)) {
    tag("forward", x(side.gradientX) - 4, 1, "", true);
    tag("gradient", x(side.gradientX) + 4, 1, "");
  }
  if (shows(side.peakX)) tag("peak " + size(side.peak), x(side.peakX) + 8, y(side.peak) - 16, "peak");
  if (line >= 0) tag("budget " + size(R.budget), wide - 4, line - 18, "budget", true);
  if (side.curve) {
    const bytes = Math.max(...side.curve.bytes), at = side.curve.x[side.curve.bytes.indexOf(bytes)];
    if (shows(at) && x(at) > 70) tag("measured", x(at) - 8, y(bytes) - 8, "", true);
  }
}
/* The place nearest to one, above it or below, that is free; never over the top. */
function nearest(from, isFree) {
  for (let off = 0; ; off += 1) {
    if (from >= off && isFree(from - off)) return from - off;
    if (isFree(from + off)) return from + off;
  }
}
function placeAreas(timeline, taken) {
  const { chart, layer, side, tops } = timeline, y = (v) => chart.valToPos(v, "y");
  const heights = columns(timeline), named = new Set();
  side.areas.forEach((area, i) => {
    const low = heights(i ? tops[i - 1] : tops[i].map(() => 0)).map(y);
    const found = roomiest(low, heights(tops[i]).map(y), [area.title, area.short]);
    if (!found || taken.has(found.left, found.right, found.top)) return;
    const { color, ink } = R.kinds[area.kind];
    const made = el("b", { "data-label": area.title, "data-kind": area.kind,
      style: `left:${found.left}px;top:${found.top}px;color:${ink};background:${color}` },
    layer, found.label);
    taken.add(found.left, found.left + made.offsetWidth, found.top);
    named.add(i);
  });
  return named;
}
/* Values at the moments -> values at every eighth pixel, straight between two moments. */
function columns({ chart, side }) {
  const last = side.x.length - 1, found = [];
  for (let j = 0, px = 0; px < chart.over.clientWidth; px += STEP) {
    const v = Math.min(side.x[last], chart.posToVal(px, "x"));
    while (j < last - 1 && side.x[j + 1] < v) j += 1;
    found.push([j, last ? (v - side.x[j]) / Math.max(1e-9, side.x[j + 1] - side.x[j]) : 0]);
  }
  return (values) => found.map(([j, on]) =>
    values[j] + on * ((values[j + 1] ?? values[j]) - values[j]));
}
/* Where the first of some labels fits into an area, and of those places where it is highest. */
function roomiest(low, up, labels) {
  const widths = labels.map((text) => LETTER * text.length + STEP);
  let best = { score: 0 };
  for (let j = 0; j < low.length; j += 2) {
    const tall = low[j] - up[j], middle = (low[j] + up[j]) / 2;
    if (tall < LINE + 2) continue;
    const holds = (k) => up[k] <= middle - LINE / 2 && low[k] >= middle + LINE / 2;
    let [from, to] = [j, j];
    while (from > 0 && holds(from - 1)) from -= 1;
    while (to < low.length - 1 && holds(to + 1)) to += 1;
    const which = widths.findIndex((width) => width < STEP * (to - from));
    const score = which < 0 ? 0 : tall + 1000 * (labels.length - which);
    if (score <= best.score) continue;
    const left = (STEP * (from + to) - widths[which]) / 2 + 2;
    best = { score, left, right: left + widths[which], top: middle - LINE / 2, label: labels[which] };
  }
  return best.score ? best : null;
}
