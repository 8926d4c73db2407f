/* The loops below a timeline: bars that tell of themselves, and open their step nets. */
"use strict";
const LANE = 25;

/* Puts a side's loops into an element; returns what moves them to where the axis shows them. */
function drawLoops(side, host) {
  const frame = el("div", { class: "window" }, host), seen = new Set();
  const loops = side.spans.map((span) => {
    const made = loopButton(span, !seen.has(span.graph));
    seen.add(span.graph);
    frame.append(made);
    return [span, made];
  });
  const ends = [];  // loops that overlap, or stand in each other, get a lane each
  loops.forEach(([span, made]) => {
    let lane = span.depth;
    while (ends[lane] > span.start + 1) lane += 1;
    ends[lane] = span.end;
    made.style.top = LANE * lane + "px";
  });
  host.style.height = LANE * ends.length + "px";
  return (chart) => {
    const x = (v) => chart.valToPos(v, "x");
    frame.style.cssText = `left:${chart.over.style.left};width:${chart.over.style.width};right:auto`;
    loops.forEach(([span, made]) => {
      const left = Math.max(0, x(span.start));
      const width = Math.max(4, Math.min(chart.over.clientWidth, x(span.end)) - left);
      made.style.left = left + "px";
      made.style.width = width + "px";
      made.textContent = width < 34 ? "" : span.name + " × " + span.iterations;
    });
  };
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
