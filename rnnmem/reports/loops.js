/* The loops below a timeline: bars that tell of themselves, and open their step nets. */
"use strict";
const LANE = 28, PADDING = 6, TARGET = 24;

/* Puts a side's loops into an element; returns what moves them to where the axis shows them. */
function drawLoops(side, host) {
  const lanes = el("div", { class: "lanes" }, host), frame = el("div", { class: "window" }, lanes);
  const ends = [];  // loops that overlap, or stand in each other, get a lane each
  const bars = side.spans.map((span) => {
    const made = loopButton(span, { class: "run " + kindOf(span) }, frame);
    let lane = span.depth;
    while (ends[lane] > span.start + 1) lane += 1;
    ends[lane] = span.end;
    const beside = loopButton(span, { class: "beside" }, frame);
    [made, beside].forEach((one) => { one.style.top = LANE * lane + "px"; });
    return { span, made, beside, lane, texts: [loopText(span), span.name] };
  });
  const byLane = ends.map((_, lane) => bars.filter((bar) => bar.lane === lane));
  lanes.style.height = LANE * ends.length + "px";
  const nameRest = listLoops(bars, host);
  return (chart) => {
    const wide = chart.over.clientWidth, x = (v) => chart.valToPos(v, "x");
    frame.style.cssText = `left:${chart.over.style.left};width:${chart.over.style.width};right:auto`;
    byLane.forEach((lane) => placeLane(lane, x, wide));
    nameRest(wide);
  };
}
/* A lane's bars, and their texts: in the bar, else beside it, else in the list below. */
function placeLane(bars, x, wide) {
  const widthOf = measure(bars);
  bars.forEach((bar) => {
    bar.left = Math.max(0, x(bar.span.start));
    bar.right = Math.min(wide, x(bar.span.end));
    if (bar.right < 0) bar.left = -9;  // out of sight on the left
    bar.right = Math.max(bar.left + 4, bar.right);
  });
  let free = 0;
  bars.forEach((bar, i) => {
    const { made, beside, left, right, texts } = bar;
    const room = (text) => Math.max(TARGET, widthOf(text) + 2 * PADDING);
    const inside = texts.find((text) => room(text) <= right - left) || "";
    const last = i + 1 === bars.length, next = last ? wide : Math.min(wide, bars[i + 1].left);
    const behind = texts.find((text) => right + room(text) <= next);
    const before = last && left < wide && texts.find((text) => left - room(text) >= free);
    const shown = left < 0 || inside ? "" : behind || before || "";
    made.textContent = inside;
    made.style.cssText += `;left:${left}px;width:${right - left}px;padding:0 ${inside ? 4 : 0}px`;
    beside.textContent = shown;
    beside.hidden = !shown;
    beside.style.left = (behind ? right : left - room(shown)) + "px";
    beside.style.width = room(shown) + "px";
    bar.named = inside ? made : shown ? beside : null;
    free = shown && behind ? right + room(shown) : right;
  });
}
/* A list for the loops in sight of which no run has room for its name; returns what fills it.
   Of all that opens one loop, Tab stops at what is named first. */
function listLoops(bars, host) {
  const list = el("ul", { class: "legend rest" }, host);
  el("li", { class: "soft" }, list, "too narrow for a name, from the left:");
  const rows = [...new Set(bars.map((bar) => bar.span.graph))].map((graph) => {
    const row = el("li", {}, list), runs = bars.filter((bar) => bar.span.graph === graph);
    const { span } = runs[0], made = loopButton(span, { class: kindOf(span) }, row);
    made.textContent = loopText(span);
    const heat = (hot) => runs.forEach((run) => run.made.classList.toggle("hot", hot));
    ["mouseenter", "focus"].forEach((one) => made.addEventListener(one, () => heat(true)));
    ["mouseleave", "blur"].forEach((one) => made.addEventListener(one, () => heat(false)));
    return { row, made, runs };
  });
  return (wide) => {
    rows.forEach(({ row, runs }) => {
      const named = runs.find((run) => run.named), inSight = (run) => run.left >= 0 && run.left < wide;
      row.hidden = Boolean(named) || !runs.some(inSight);
      runs.flatMap((run) => [run.made, run.beside]).forEach((one) => { one.tabIndex = -1; });
      if (named) named.named.tabIndex = 0;
    });
    list.hidden = rows.every(({ row }) => row.hidden);
  };
}
function measure(bars) {
  const on = document.createElement("canvas").getContext("2d");
  if (bars.length) on.font = getComputedStyle(bars[0].made).font;
  return (text) => on.measureText(text).width;
}
const loopText = (span) => span.name + " × " + span.iterations;
const kindOf = (span) => span.gradient ? "gradient" : "forward";
function loopButton(span, attributes, parent) {
  const opens = R.graphs.some((graph) => graph.id === span.graph);
  const made = el("button", { type: "button", "data-graph": span.graph, ...attributes,
    "aria-label": "loop " + loopText(span) + " iterations" + (opens ? ", opens its step net" : "") },
  parent);
  const tell = (event) => showTip(event.clientX || besides(made).left,
    event.clientY || besides(made).bottom, [["b", "loop " + span.name],
      ["div", span.iterations + " iterations"], ["div", span.source && "line " + span.source],
      ["div", span.graph], ["div", opens && "opens its step net"]]);
  ["mousemove", "focus"].forEach((one) => made.addEventListener(one, tell));
  ["mouseleave", "blur"].forEach((one) => made.addEventListener(one, hideTip));
  if (opens) {
    made.addEventListener("click", () => {
      hideTip();
      open(span.graph);
      byId("step-nets").scrollIntoView({ block: "start" });
    });
  }
  return made;
}
