/* Memory over one run: areas and lines drawn by uPlot; mouse, touch and keyboard. */
"use strict";
const MIB = 1048576, KIB = 1024;
const STEPS = [1, 2, 5].flatMap((v) => [...Array(9).keys()].map((e) => v * 10 ** (e - 2)))
  .sort((a, b) => a - b);
const charts = [];

function drawTimelines() {
  charts.splice(0).forEach((one) => one.destroy());
  const host = byId("timeline"), sides = R.sides.filter((side) => side.x.length);
  host.replaceChildren();
  host.className = "sides";
  if (!sides.length) {
    el("p", {}, host, "Nothing can be drawn: " + (R.sides[0].unknown.length
      ? "unknown before a run: " + R.sides[0].unknown.slice(0, 5).join(", ")
      : "the function allocates nothing."));
    return;
  }
  const top = 1.14 * Math.max(1, R.budget || 0,
    ...sides.map((side) => Math.max(side.peak || 0, side.measured || 0)));
  sides.forEach((side) => new Timeline(host, side, top));
}
function tellArea(area, index) {
  return [["b", area.title], ["div", area.where],
    ["div", size(area.bytes[index]) + " here, " + size(Math.max(...area.bytes)) + " at most"],
    ["div", area.lines && "line " + area.lines],
    ["div", area.decision ? "decision: " + area.decision : "kind: " + area.kind],
    ["div", area.reason || R.kinds[area.kind].meaning], ["div", area.names.join(", ")]];
}

/* One side. `at` is the moment that is told of, `hot` the area that stands out. */
class Timeline {
  constructor(host, side, top) {
    Object.assign(this, { side, top, high: top, at: null, hot: null, tops: [] });
    this.last = side.x.length - 1;
    side.areas.forEach((area, i) => this.tops.push(
      area.bytes.map((bytes, j) => bytes + (i ? this.tops[i - 1][j] : 0))));
    const figure = el("figure", { id: "side-" + side.name }, host);
    const caption = el("figcaption", {}, figure);
    el("h3", {}, caption, side.name + ": " + side.title);
    this.buttons = el("span", { class: "zoom" }, caption);
    const plot = el("div", { class: "plot" }, figure);
    this.placeLoops = drawLoops(side, figure);
    this.listThin = listAreas(this, figure);
    if (side.gaps) el("p", { class: "soft gaps" }, figure, side.gaps);
    this.chart = new uPlot(this.options(plot), [side.x, ...this.tops.slice().reverse()], plot);
    charts.push(this.chart);
    this.layer = el("div", { class: "layer" }, this.chart.over.parentNode);
    this.listen();
    this.offerZoom();
    this.place();
    new ResizeObserver(() => plot.clientWidth && plot.clientWidth !== this.chart.width
      && this.chart.setSize({ width: plot.clientWidth, height: this.chart.height })).observe(plot);
  }
  options(plot) {
    const unit = this.top > MIB ? MIB : KIB;
    const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 }, labelSize: 20,
      ticks: { stroke: css("--line") }, font: "12px system-ui", labelFont: "12px system-ui" };
    return {
      width: plot.clientWidth, height: innerWidth < 700 ? 300 : 380, legend: { show: false },
      scales: { x: { time: false }, y: { range: () => [0, this.high] } },
      cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
      axes: [{ ...axis, label: "allocations and releases, in order", size: 34,
        incrs: STEPS.filter((step) => step >= 1),
        values: (_, at) => at.map((v) => v >= 10000 ? v / 1000 + "k" : v) },
      { ...axis, label: (unit === MIB ? "MiB" : "KiB") + " above the resident state", size: 46,
        incrs: STEPS.map((step) => step * unit),
        values: (_, at) => at.map((v) => +(v / unit).toFixed(2)) }],
      series: [{}, ...this.series()],
      hooks: { draw: [(chart) => this.drawLines(chart)], setCursor: [() => this.pointed()],
        setScale: [() => this.place()], setSize: [() => this.place()] },
    };
  }
  series() {  // the highest is drawn first, and those below it over it
    const fills = new Map();
    return this.side.areas.map((area, i) => ({ stroke: css("--paper"), width: .5,
      points: { show: false }, fill: () => {
        const faded = this.hot !== null && this.hot !== i, key = area.kind + faded;
        if (!fills.has(key)) fills.set(key, pattern(area.kind, faded));
        return fills.get(key);
      } })).reverse();
  }
  place() {
    if (!this.layer) return;
    this.listThin(placeLabels(this));
    this.placeLoops(this.chart);
  }
  inSight(area) {
    const { side, last } = this, { min, max } = this.chart.scales.x;
    return side.areas[area].bytes.some((bytes, j) => bytes  // on its way to here, or from here on
      && side.x[Math.min(last, j + 1)] >= min && side.x[Math.max(0, j - 1)] <= max);
  }
  drawLines(chart) {  // over the areas
    const { ctx: on, bbox } = chart, { side } = this, scale = devicePixelRatio, right = bbox.left + bbox.width;
    const x = (v) => chart.valToPos(v, "x", true), y = (v) => chart.valToPos(v, "y", true);
    const path = (points) => { on.beginPath(); points.forEach(([a, b]) => on.lineTo(a, b)); };
    const stroke = (points, color, width, dash) => {
      on.setLineDash(dash.map((d) => d * scale));
      on.lineWidth = width * scale;
      on.strokeStyle = css(color);
      path(points);
      on.stroke();
    };
    on.save();
    on.beginPath();
    on.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    on.clip();
    if (side.curve) {  // light below dark, to stand out from every area
      const points = side.curve.x.map((v, i) => [x(v), y(side.curve.bytes[i])]);
      stroke(points, "--paper", 3.5, []);
      stroke(points, "--ink", 1.4, []);
    }
    if (R.budget) stroke([[bbox.left, y(R.budget)], [right, y(R.budget)]], "--ink", 1.5, [7, 4]);
    if (side.gradientX !== null) {
      stroke([[x(side.gradientX), bbox.top], [x(side.gradientX), y(0)]], "--ink", 1.2, [2, 3]);
    }
    const [px, py, wide] = [x(side.peakX), y(side.peak), 5 * scale];
    path([[px, py - 2], [px - wide, py - 2 * wide], [px + wide, py - 2 * wide]]);
    on.fillStyle = css("--ink");
    on.fill();
    on.restore();
  }

  /* -- zooming: a factor of 0 shows the whole run */
  zoom(factor) {
    const { side, chart } = this, { min, max } = chart.scales.x;
    const first = side.x[0], last = Math.max(side.x[this.last], first + 1);
    const middle = this.at === null ? (min + max) / 2 : side.x[this.at];
    const inside = Math.min(max, Math.max(min, middle));
    chart.setScale("x", factor ? { min: Math.max(first, inside - (inside - min) * factor),
      max: Math.min(last, inside + (max - inside) * factor) } : { min: first, max: last });
  }
  offerZoom() {
    const { side, top, chart } = this, most = Math.max(side.peak, side.measured || 0);
    const own = 1.14 * Math.max(most, R.budget < 2 * most ? R.budget : 0);
    const offer = (text, told, act) => {
      const made = el("button", { type: "button", "aria-label": told + ", " + side.name },
        this.buttons, text);
      made.addEventListener("click", () => act(made));
      return made;
    };
    offer("−", "zoom out", () => this.zoom(1.6));
    offer("+", "zoom in", () => this.zoom(.6));
    offer("whole run", "show the whole run", () => this.zoom(0));
    if (own < .6 * top) {
      offer("own scale", "own scale", (made) => {
        this.high = this.high === top ? own : top;
        made.setAttribute("aria-pressed", this.high === own);
        chart.setScale("y", { min: 0, max: this.high });
      }).setAttribute("aria-pressed", false);
    }
  }

  /* -- what mouse, fingers and keys do */
  listen() {
    const { over, axes } = this.chart, fingers = new Map();
    const said = { tabindex: 0, role: "slider", "aria-valuemin": 0, "aria-valuemax": this.last,
      "aria-valuenow": 0,
      "aria-label": `memory ${this.side.name}, ${axes[1].label}; ${axes[0].label}` };
    Object.entries(said).forEach(([key, value]) => over.setAttribute(key, value));
    const on = (events, act) => events.forEach((one) => over.addEventListener(one, act));
    on(["keydown"], (event) => this.pressed(event));
    on(["blur", "mouseleave"], () => this.leave());
    on(["pointerdown"], (event) => {
      if (event.pointerType !== "touch") return;
      fingers.set(event.pointerId, event.clientX);
      const box = besides(over);
      this.chart.setCursor({ left: event.clientX - box.left, top: event.clientY - box.top });
    });
    on(["pointermove"], (event) => {
      if (!fingers.has(event.pointerId)) return;
      const spread = () => Math.abs([...fingers.values()].reduce((a, b) => a - b));
      const before = spread();
      fingers.set(event.pointerId, event.clientX);
      if (fingers.size === 2 && spread() > 8) this.zoom(before / spread());
    });
    on(["pointerup", "pointercancel"], (event) => fingers.delete(event.pointerId));
  }
  heat(area) {
    if (this.hot === area) return;
    this.hot = area;
    this.chart.redraw(false);
  }
  leave() {
    this.at = null;
    this.heat(null);
    hideTip();
  }
  pointed() {
    const { left, top, idx } = this.chart.cursor, box = besides(this.chart.over);
    if (idx === null || idx === undefined || left < 0) return;
    this.at = idx;
    const bytes = this.chart.posToVal(top, "y");
    const area = this.tops.findIndex((heights) => bytes < heights[idx]);
    this.heat(area < 0 ? null : area);
    if (area < 0) hideTip();
    else showTip(box.left + left, box.top + top, tellArea(this.side.areas[area], idx));
  }
  pressed(event) {
    const { side, last, hot } = this, step = event.shiftKey ? 10 : 1;
    const here = this.at === null ? momentOfPeak(side) : this.at;
    const alive = [...side.areas.keys()].filter((i) => side.areas[i].bytes[here]);
    const go = (index) => () => this.goTo(Math.min(last, Math.max(0, index)), hot);
    const act = { ArrowLeft: go(here - step), ArrowRight: go(here + step), Home: go(0), End: go(last),
      ArrowUp: () => this.goTo(here, alive.find((i) => hot === null || i > hot) ?? hot),
      ArrowDown: () => this.goTo(here, alive.findLast((i) => hot === null || i < hot) ?? hot),
      "+": () => this.zoom(.6), "-": () => this.zoom(1.6), 0: () => this.zoom(0) }[event.key];
    if (!act) return;
    act();
    event.preventDefault();
  }
  goTo(index, area) {
    const { chart, side, tops } = this, box = besides(chart.over);
    this.at = index;
    this.heat(area);
    const told = [["b", size(tops.length ? tops.at(-1)[index] : 0) + " in use"],
      ...(area === null ? [] : tellArea(side.areas[area], index))].filter((line) => line[1]);
    chart.over.setAttribute("aria-valuenow", index);
    chart.over.setAttribute("aria-valuetext", told.map((line) => line[1]).join(", "));
    // Above the chart, so that the area itself is seen.
    showTip(box.left + chart.valToPos(side.x[index], "x"), box.top - 10, told);
  }
}
