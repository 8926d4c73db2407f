/* Memory over one run: areas, lines and labels on uPlot, the loops below, mouse, touch and keyboard. */
"use strict";
/* ---- colours and hatches: the hatch is a second cue, for who cannot tell the colours apart */
function pattern(kind, faded) {
  const tile = el("canvas", { width: 8, height: 8 }), on = tile.getContext("2d");
  const { color, ink, hatch } = R.kinds[kind];
  on.globalAlpha = faded ? .3 : 1;
  on.fillStyle = color;
  on.fillRect(0, 0, 8, 8);
  on.globalAlpha *= .38;
  on.strokeStyle = on.fillStyle = ink;
  on.beginPath();
  if (hatch === "/") [-8, 0, 8].forEach((x) => { on.moveTo(x, 8); on.lineTo(x + 8, 0); });
  if (hatch === "\\") [-8, 0, 8].forEach((x) => { on.moveTo(x, 0); on.lineTo(x + 8, 8); });
  if (hatch === "-") { on.moveTo(0, 4); on.lineTo(8, 4); }
  if (hatch === "|") { on.moveTo(4, 0); on.lineTo(4, 8); }
  if (hatch === ".") on.fillRect(3, 3, 2.5, 2.5);
  on.stroke();
  return on.createPattern(tile, "repeat");
}
function swatch(kind, parent, width, height) {
  const made = el("canvas", { width, height, class: "swatch", "aria-hidden": "true" }, parent);
  const on = made.getContext("2d");
  on.fillStyle = pattern(kind);
  on.fillRect(0, 0, width, height);
  return made;
}

/* ---- timelines */
const charts = [];
function tellArea(area, index) {
  return [["b", area.title], ["div", area.where],
    ["div", size(area.bytes[index]) + " here, " + size(Math.max(...area.bytes)) + " at most"],
    ["div", area.lines && "line " + area.lines],
    ["div", area.decision ? "decision: " + area.decision : "kind: " + area.kind],
    ["div", area.reason || R.kinds[area.kind].meaning], ["div", area.names.join(", ")]];
}
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
  sides.forEach((side) => drawSide(host, side, top));
}
function drawSide(host, side, top) {
  const figure = el("figure", { id: "side-" + side.name }, host);
  const caption = el("figcaption", {}, figure);
  el("h3", {}, caption, side.name + ": " + side.title);
  const zoom = el("span", { class: "zoom" }, caption);
  const plot = el("div", { class: "plot" }, figure), lanes = el("div", { class: "lanes" }, figure);
  const last = side.x.length - 1, run = [side.x[0], Math.max(side.x[last], side.x[0] + 1)];
  const tops = [];  // of each area, at each moment
  side.areas.forEach((area, i) => tops.push(area.bytes.map((b, j) => b + (i ? tops[i - 1][j] : 0))));
  const unit = top > 1048576 ? 1048576 : 1024;
  const axis = { stroke: css("--soft"), grid: { stroke: css("--line"), width: 1 },
    ticks: { stroke: css("--line") }, font: "12px system-ui", labelFont: "12px system-ui" };
  const fills = new Map();
  let hot = null, at = null, layer = null, high = top;
  const series = side.areas.map((area, i) => ({ stroke: css("--paper"), width: .5,
    points: { show: false }, fill: () => {
      const key = area.kind + (hot !== null && hot !== i);
      if (!fills.has(key)) fills.set(key, pattern(area.kind, hot !== null && hot !== i));
      return fills.get(key);
    } })).reverse();  // the highest is drawn first, and those below it over it
  const chart = new uPlot({
    width: plot.clientWidth, height: innerWidth < 700 ? 300 : 380, legend: { show: false },
    scales: { x: { time: false }, y: { range: () => [0, high] } },
    cursor: { y: false, points: { show: false }, drag: { x: true, y: false } },
    axes: [{ ...axis, label: "allocations and releases, in order", labelSize: 20, size: 34,
      incrs: [1, 2, 5].flatMap((v) => [...Array(9).keys()].map((e) => v * 10 ** e)).sort((a, b) => a - b),
      values: (_, at) => at.map((v) => v >= 10000 ? v / 1000 + "k" : v) },
    { ...axis, label: (unit > 1024 ? "MiB" : "KiB") + " above the resident state", labelSize: 20,
      size: 46, incrs: [.01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000, 2000, 5000,
        10000].map((v) => v * unit), values: (_, at) => at.map((v) => +(v / unit).toFixed(2)) }],
    series: [{}, ...series],
    hooks: { draw: [lines], setScale: [place], setSize: [place],
      ready: [(u) => { begin(u); place(); }], setCursor: [pointed] },
  }, [side.x, ...tops.slice().reverse()], plot);
  charts.push(chart);
  new ResizeObserver(() => plot.clientWidth && plot.clientWidth !== chart.width
    && chart.setSize({ width: plot.clientWidth, height: chart.height })).observe(plot);

  function lines(u) {  // over the areas: measured, budget, where the gradient begins, the peak
    const on = u.ctx, scale = devicePixelRatio;
    const x = (v) => u.valToPos(v, "x", true), y = (v) => u.valToPos(v, "y", true);
    const stroke = (points, dash, width) => {
      on.setLineDash(dash.map((d) => d * scale));
      on.lineWidth = width * scale;
      on.beginPath();
      points.forEach(([a, b]) => on.lineTo(a, b));
      on.stroke();
    };
    on.save();
    on.beginPath();
    on.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    on.clip();
    if (side.curve) {  // light below dark, to stand out from every area
      const points = side.curve.x.map((v, i) => [x(v), y(side.curve.bytes[i])]);
      on.strokeStyle = css("--paper"); stroke(points, [], 3.5);
      on.strokeStyle = css("--ink"); stroke(points, [], 1.4);
    }
    on.strokeStyle = on.fillStyle = css("--ink");
    const [left, right] = [u.bbox.left, u.bbox.left + u.bbox.width];
    if (R.budget) stroke([[left, y(R.budget)], [right, y(R.budget)]], [7, 4], 1.5);
    if (side.gradientX !== null) {
      stroke([[x(side.gradientX), u.bbox.top], [x(side.gradientX), y(0)]], [2, 3], 1.2);
    }
    const [px, py] = [x(side.peakX), y(side.peak)];
    on.beginPath();
    [[px, py - 2], [px - 5 * scale, py - 9 * scale], [px + 5 * scale, py - 9 * scale]]
      .forEach(([a, b]) => on.lineTo(a, b));
    on.fill();
    on.restore();
  }
  function begin(u) {
    layer = el("div", { class: "layer" }, u.over.parentNode);
    const said = { tabindex: 0, role: "slider", "aria-valuemin": 0, "aria-valuemax": last,
      "aria-valuenow": 0, "aria-label": "memory " + side.name + ", " + u.axes[1].label
        + "; " + u.axes[0].label };
    Object.entries(said).forEach(([key, value]) => u.over.setAttribute(key, value));
    u.over.addEventListener("keydown", pressed);
    u.over.addEventListener("blur", leave);
    u.over.addEventListener("mouseleave", leave);
    [["−", 1.6, "zoom out"], ["+", .6, "zoom in"], ["whole run", 0, "show the whole run"]]
      .forEach(([text, factor, told]) => el("button", { type: "button", "aria-label": told + ", "
        + side.name }, zoom, text).addEventListener("click", () => zoomed(factor)));
    const own = 1.14 * Math.max(side.peak, side.measured || 0);
    if (own < .6 * top) {
      const scale = el("button", { type: "button", "aria-pressed": false,
        "aria-label": "own scale, " + side.name }, zoom, "own scale");
      scale.addEventListener("click", () => {
        high = high === top ? own : top;
        scale.setAttribute("aria-pressed", high === own);
        u.setScale("y", { min: 0, max: high });
      });
    }
    const fingers = new Map();
    u.over.addEventListener("pointerdown", (e) => {
      if (e.pointerType !== "touch") return;
      fingers.set(e.pointerId, e.clientX);
      u.setCursor({ left: e.clientX - besides(u.over).left, top: e.clientY - besides(u.over).top });
    });
    u.over.addEventListener("pointermove", (e) => {
      if (!fingers.has(e.pointerId)) return;
      const spread = () => { const [a, b] = fingers.values(); return Math.abs(a - b); };
      const before = fingers.size === 2 && spread();
      fingers.set(e.pointerId, e.clientX);
      if (before && spread() > 8) zoomed(before / spread());
    });
    ["pointerup", "pointercancel"].forEach((one) => u.over.addEventListener(one, (e) =>
      fingers.delete(e.pointerId)));
  }
  function zoomed(factor) {
    const { min, max } = chart.scales.x, middle = at === null ? (min + max) / 2 : side.x[at];
    const inside = Math.min(max, Math.max(min, middle));
    chart.setScale("x", factor ? { min: Math.max(run[0], inside - (inside - min) * factor),
      max: Math.min(run[1], inside + (max - inside) * factor) } : { min: run[0], max: run[1] });
  }
  const heat = (i) => { if (hot !== i) { hot = i; chart.redraw(false); } };
  function leave() { at = null; heat(null); hideTip(); }
  function pointed(u) {
    const { left, top: down, idx } = u.cursor;
    if (idx === null || idx === undefined || left < 0) return;
    at = idx;
    const bytes = u.posToVal(down, "y"), i = tops.findIndex((heights) => bytes < heights[idx]);
    const box = besides(u.over);
    heat(i < 0 ? null : i);
    if (i < 0) hideTip(); else showTip(box.left + left, box.top + down, tellArea(side.areas[i], idx));
  }
  function pressed(event) {
    const inside = side.x.map((_, j) => j), step = event.shiftKey ? 10 : 1;
    const here = at === null ? side.x.indexOf(side.peakX) : at;
    const alive = side.areas.map((_, i) => i).filter((i) => side.areas[i].bytes[here]);
    const moves = { ArrowLeft: -step, ArrowRight: step, Home: -here, End: last - here };
    if (event.key in moves) goTo(Math.min(last, Math.max(0, here + moves[event.key])), hot);
    else if (event.key === "ArrowUp") goTo(here, alive.find((i) => hot === null || i > hot) ?? hot);
    else if (event.key === "ArrowDown") goTo(here, alive.findLast((i) => hot === null || i < hot) ?? hot);
    else if (event.key === "+") zoomed(.6);
    else if (event.key === "-") zoomed(1.6);
    else if (event.key === "0") zoomed(0);
    else return;
    event.preventDefault();
  }
  function goTo(index, area) {
    at = index;
    heat(area);
    const total = tops.length ? tops[tops.length - 1][index] : 0;
    const told = [["b", size(total) + " in use"], ...(area === null ? [] : tellArea(side.areas[area], index))];
    const box = besides(chart.over);
    chart.over.setAttribute("aria-valuenow", index);
    chart.over.setAttribute("aria-valuetext", told.filter((one) => one[1]).map((one) => one[1]).join(", "));
    showTip(box.left + chart.valToPos(side.x[index], "x"), box.top - 10, told);  // not over the area
  }
  function place() {  // labels over the areas, and the loops below
    if (!layer) return;
    const { min, max } = chart.scales.x, over = chart.over;
    const [wide, high] = [over.clientWidth, over.clientHeight];
    const x = (v) => chart.valToPos(v, "x"), y = (v) => chart.valToPos(v, "y");
    ["left", "top", "width", "height"].forEach((one) => { layer.style[one] = over.style[one]; });
    layer.replaceChildren();
    const taken = [];
    function tag(text, left, top, wish, attributes) {
      const made = el("span", { class: "tag", ...attributes }, layer, text);
      const box = made.getBoundingClientRect();
      let from = wish === "end" ? left - box.width : wish === "middle" ? left - box.width / 2 : left;
      from = Math.max(0, Math.min(wide - box.width, from));
      while (taken.some((o) => from < o[2] && o[0] < from + box.width && top < o[3] && o[1] < top + 16)) top += 17;
      made.style.left = from + "px";
      made.style.top = Math.max(0, top) + "px";
      taken.push([from, top, from + box.width, top + 16]);
    }
    const inView = (v) => v >= min && v <= max;
    if (side.gradientX !== null && inView(side.gradientX)) {
      tag("forward", x(side.gradientX) - 4, 1, "end");
      tag("gradient", x(side.gradientX) + 4, 1);
    }
    if (inView(side.peakX)) tag("peak " + size(side.peak), x(side.peakX) + 8, y(side.peak) - 16, "", { class: "tag peak" });
    if (R.budget) tag("budget " + size(R.budget), wide - 4, y(R.budget) - 18, "end", { class: "tag budget" });
    if (side.curve) {
      const most = side.curve.bytes.indexOf(Math.max(...side.curve.bytes));
      if (inView(side.curve.x[most]) && x(side.curve.x[most]) > 70) {
        tag("measured", x(side.curve.x[most]) - 8, y(side.curve.bytes[most]) - 8, "end");
      }
    }
    const columns = [];  // every eighth pixel: the moment before it, and how far on
    for (let j = 0, px = 0; px < wide; px += 8) {
      const v = Math.min(side.x[last], chart.posToVal(px, "x"));
      while (j < last - 1 && side.x[j + 1] < v) j += 1;
      columns.push([j, last ? (v - side.x[j]) / Math.max(1e-9, side.x[j + 1] - side.x[j]) : 0]);
    }
    const over8 = (values) => columns.map(([j, on]) => values[j] + on * ((values[j + 1] ?? values[j]) - values[j]));
    side.areas.forEach((area, i) => {
      const up = over8(tops[i]).map(y), low = over8(i ? tops[i - 1] : tops[i].map(() => 0)).map(y);
      const fits = [area.title, area.short].map((text) => 7.2 * text.length + 8);
      let best = null;  // where the longer label fits, and of those places where it is highest
      for (let j = 0; j < columns.length; j += 2) {
        const tall = low[j] - up[j], middle = (low[j] + up[j]) / 2;
        if (tall < 18) continue;
        const holds = (k) => up[k] <= middle - 8 && low[k] >= middle + 8;
        let [from, to] = [j, j];
        while (from > 0 && holds(from - 1)) from -= 1;
        while (to < columns.length - 1 && holds(to + 1)) to += 1;
        const room = 8 * (to - from), which = fits.findIndex((wanted) => wanted < room);
        const score = which < 0 ? 0 : tall + (which ? 0 : 1000);
        if (score > (best ? best.score : 0)) best = { score, room, start: 8 * from, top: middle - 8,
          label: which ? area.short : area.title };
      }
      if (!best) return;
      const { room, start, top, label } = best;
      const left = start + (room - 7.2 * label.length - 8) / 2, right = left + 7.2 * label.length + 8;
      if (taken.some((o) => left < o[2] && o[0] < right && top < o[3] && o[1] < top + 16)) return;
      const made = el("button", { type: "button", "data-label": area.title, "data-kind": area.kind,
        "aria-label": area.kind + ": " + area.title + (area.where && ", " + area.where),
        style: `left:${left + 2}px;top:${top}px;color:${R.kinds[area.kind].ink};`
          + `background:${R.kinds[area.kind].color}` }, layer, label);
      made.addEventListener("focus", () => goTo(side.x.indexOf(side.peakX), i));
      made.addEventListener("blur", leave);
      taken.push([left, top, left + made.offsetWidth, top + 16]);
    });
    placeLoops(over, x);
  }
  const seen = new Set();
  const loops = side.spans.map((span) => {
    const has = R.graphs.some((graph) => graph.id === span.graph), first = !seen.has(span.graph);
    seen.add(span.graph);
    const made = el("button", { type: "button", class: span.gradient ? "gradient" : "forward",
      "data-graph": span.graph, "aria-label": "loop " + span.name + ", " + span.iterations
        + " iterations" + (has ? ", opens its step net" : ""), tabindex: first ? 0 : -1 });
    const tell = (event) => showTip(event.clientX || besides(made).left, event.clientY
      || besides(made).bottom, [["b", "loop " + span.name], ["div", span.iterations + " iterations"],
      ["div", span.source && "line " + span.source], ["div", span.graph],
      ["div", has && "opens its step net"]]);
    made.addEventListener("mousemove", tell);
    made.addEventListener("focus", tell);
    ["mouseleave", "blur"].forEach((one) => made.addEventListener(one, hideTip));
    if (has) made.addEventListener("click", () => { hideTip(); open(span.graph);
      byId("step-nets").scrollIntoView({ block: "start" }); });
    return [span, made];
  });
  if (side.gaps) el("p", { class: "soft gaps" }, figure, side.gaps);
  const frame = el("div", { class: "window" }, lanes);
  frame.append(...loops.map((one) => one[1]));
  const ends = [];  // loops that overlap, or stand in each other, get a lane each
  loops.forEach(([span, made]) => {
    let lane = span.depth;
    while (ends[lane] > span.start + 1) lane += 1;
    ends[lane] = span.end;
    made.style.top = 25 * lane + "px";
  });
  lanes.style.height = 25 * ends.length + "px";
  function placeLoops(over, x) {
    frame.style.left = over.style.left;
    frame.style.right = "auto";
    frame.style.width = over.style.width;
    loops.forEach(([span, made]) => {
      const left = Math.max(0, x(span.start));
      made.style.left = left + "px";
      const width = Math.max(4, Math.min(over.clientWidth, x(span.end)) - left);
      made.style.width = width + "px";
      made.textContent = width < 34 ? "" : span.name + " × " + span.iterations;
    });
  }
  place();
}
function legends() {
  byId("kinds").replaceChildren();
  const drawn = new Set(R.sides.flatMap((side) => side.areas.map((area) => area.kind)));
  Object.keys(R.kinds).filter((kind) => drawn.has(kind)).forEach((kind) => {
    const one = el("li", { title: R.kinds[kind].meaning }, byId("kinds"));
    swatch(kind, one, 22, 14);
    one.append(kind);
  });
  [["line", "measured", R.sides.some((side) => side.curve)],
    ["line dashed", "budget", R.budget],
    ["line dotted", "gradient begins", R.sides.some((side) => side.gradientX !== null)]]
    .forEach(([style, text, there]) => {
      if (!there) return;
      const one = el("li", {}, byId("kinds"));
      el("i", { class: "swatch " + style }, one);
      one.append(text);
    });
}
