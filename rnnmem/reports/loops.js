/* The loops below a timeline: bars that tell of themselves, and open their step nets. */
"use strict";
const LANE = 25, PADDING = 6;

/* Puts a side's loops into an element; returns what moves them to where the axis shows them. */
function drawLoops(side, host) {
  const frame = el("div", { class: "window" }, host), seen = new Set();
  const ends = [];  // loops that overlap, or stand in each other, get a lane each
  const bars = side.spans.map((span) => {
    const made = loopButton(span, !seen.has(span.graph));
    seen.add(span.graph);
    frame.append(made);
    let lane = span.depth;
    while (ends[lane] > span.start + 1) lane += 1;
    ends[lane] = span.end;
    made.style.top = LANE * lane + "px";
    const beside = el("span", { class: "beside", "aria-hidden": "true" }, frame);
    beside.style.top = LANE * lane + "px";
    return { span, made, beside, lane, texts: [span.name + " × " + span.iterations, span.name] };
  });
  const lanes = ends.map((_, lane) => bars.filter((bar) => bar.lane === lane));
  host.style.height = LANE * ends.length + "px";
  return (chart) => {
    const wide = chart.over.clientWidth, x = (v) => chart.valToPos(v, "x");
    frame.style.cssText = `left:${chart.over.style.left};width:${chart.over.style.width};right:auto`;
    lanes.forEach((lane) => placeLane(lane, x, wide));
  };
}
/* A lane's bars, and their texts: in the bar, else beside it, else nowhere but in the tip. */
function placeLane(bars, x, wide) {
  const widthOf = measure(bars);
  bars.forEach((bar) => {
    bar.left = Math.max(0, x(bar.span.start));
    bar.right = Math.min(wide, x(bar.span.end));
    if (bar.right < 0) bar.left = -9;  // out of sight on the left
    bar.right = Math.max(bar.left + 4, bar.right);
  });
  let free = 0;
  bars.forEach(({ made, beside, left, right, texts }, i) => {
    const room = (text) => widthOf(text) + 2 * PADDING;
    const inside = texts.find((text) => room(text) <= right - left) || "";
    const last = i + 1 === bars.length, next = last ? wide : Math.min(wide, bars[i + 1].left);
    const behind = texts.find((text) => right + room(text) <= next);
    const before = last && left < wide && texts.find((text) => left - room(text) >= free);
    const shown = left < 0 || inside ? "" : behind || before || "";
    made.textContent = inside;
    made.style.cssText += `;left:${left}px;width:${right - left}px;padding:0 ${inside ? 4 : 0}px`;
    beside.textContent = shown;
    beside.style.left = (behind ? right : left - room(shown)) + PADDING + "px";
    free = shown && behind ? right + room(shown) : right;
  });
}
function measure(bars) {
  const on = document.createElement("canvas").getContext("2d");
  if (bars.length) on.font = getComputedStyle(bars[0].made).font;
  return (text) => on.measureText(text).width;
}
function loopButton(span, isFirst) {  // of the runs of one loop, Tab stops at the first
  const opens = R.graphs.some((graph) => graph.id === span.graph);
  const made = el("button", { type: "button", class: span.gradient ? "gradient" : "forward",
    "data-graph": span.graph, tabindex: isFirst ? 0 : -1, "aria-label": "loop " + span.name + ", "
      + span.iterations + " iterations" + (opens ? ", opens its step net" : "") });
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
