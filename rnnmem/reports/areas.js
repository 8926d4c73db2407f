/* The areas of a timeline that have no room for a name: listed below it, the largest first. */
"use strict";
const LISTED = 6;

/* Lists a timeline's areas in an element; returns what shows those in sight that `named` lacks.
   Pointing at one, or its focus, has its area stand out; a click leads to it. */
function listAreas(timeline, host) {
  const { side } = timeline, peak = momentOfPeak(side);
  const list = el("ul", { class: "legend thin",
    "aria-label": "areas without room for a name, " + side.name }, host);
  el("li", { class: "soft" }, list, "no room for a name, by size at the peak:");
  const atPeak = (i) => side.areas[i].bytes[peak], most = (i) => Math.max(...side.areas[i].bytes);
  const rows = [...side.areas.keys()]
    .sort((a, b) => atPeak(b) - atPeak(a) || most(b) - most(a))
    .map((i) => ({ i, row: areaRow(timeline, i, atPeak(i) ? peak : null, list) }));
  const last = el("li", {}, list), more = el("button", { type: "button" }, last);
  let all = false, named = new Set();
  const show = () => {
    const unnamed = rows.filter(({ i, row }) => {
      row.hidden = true;
      return !named.has(i) && timeline.inSight(i);
    });
    unnamed.forEach(({ row }, place) => { row.hidden = !all && place >= LISTED; });
    const rest = unnamed.length - LISTED;
    more.textContent = all ? "show fewer" : `show ${rest} more`;
    more.setAttribute("aria-expanded", all);
    last.hidden = rest <= 0;
    list.hidden = !unnamed.length;
  };
  more.addEventListener("click", () => { all = !all; show(); });
  return (found) => { named = found; show(); };
}
/* One row; `peak` is the moment of the peak where the area stands there, else nothing. */
function areaRow(timeline, i, peak, list) {
  const area = timeline.side.areas[i], most = Math.max(...area.bytes);
  const at = peak === null ? area.bytes.indexOf(most) : peak;
  const row = el("li", {}, list), made = el("button", { type: "button", "data-area": area.id }, row);
  swatch(area.kind, made, 12, 12);
  el("span", {}, made, area.title + (area.where ? ", " + area.where : ""));
  el("b", {}, made, size(area.bytes[at]) + (peak === null ? " elsewhere" : ""));
  const tell = () => {
    timeline.heat(i);
    const box = besides(made);
    showTip(box.left, box.bottom - 14, tellArea(area, at));
  };
  ["mouseenter", "focus"].forEach((one) => made.addEventListener(one, tell));
  ["mouseleave", "blur"].forEach((one) => made.addEventListener(one, () => timeline.leave()));
  made.addEventListener("click", () => {
    timeline.chart.over.focus();
    timeline.goTo(at, i);
  });
  return row;
}
/* Where the areas stand highest, of the moments that share the place of the peak. */
function momentOfPeak(side) {
  const total = (j) => side.areas.reduce((sum, area) => sum + area.bytes[j], 0);
  return [...side.x.keys()].filter((j) => side.x[j] === side.peakX)
    .reduce((best, j) => (total(j) > total(best) ? j : best), side.x.indexOf(side.peakX));
}
