/* Step nets as dagre lays them out; nodes tell of themselves, and open what is inside them. */
"use strict";
const MARGIN = 14;

/* ---- step nets */
function open(id) {
  const graph = R.graphs.find((one) => one.id === id);
  if (!graph) return;
  const sides = [...new Set(R.graphs.map((one) => one.side))];
  byId("toggle").replaceChildren();
  if (sides.length > 1) sides.forEach((side) => {
    const target = R.graphs.find((one) => one.id === [side, ...graph.loops].join("/"))
      || R.graphs.find((one) => one.side === side && !one.loops.length);
    el("button", { type: "button", "aria-pressed": side === graph.side }, byId("toggle"), side)
      .addEventListener("click", () => open(target.id));
  });
  byId("path").replaceChildren();
  ["", ...graph.loops].forEach((_, deep) => {
    if (deep) byId("path").append(" › ");
    const to = [graph.side, ...graph.loops.slice(0, deep)].join("/");
    const here = deep === graph.loops.length ? { "aria-current": "page" } : {};
    el("button", { type: "button", "data-graph": to, ...here }, byId("path"),
      deep ? graph.names[deep - 1] : R.name).addEventListener("click", () => open(to));
  });
  byId("left").textContent = leftOut(graph);
  drawGraph(graph);
}
function leftOut({ left, leftBytes }) {
  if (!left) return "";
  const most = left > 1 ? "of at most " + size(leftBytes) + " each" : "of " + size(leftBytes);
  return `${left} more op${left > 1 ? "s" : ""}, ${most}, ${left > 1 ? "are" : "is"} not drawn; edges`
    + ` go through ${left > 1 ? "them" : "it"}`;
}
/* What a layout covers: dagre counts nodes alone, and leads edges beside them. */
function bounds(layout) {
  const boxes = layout.nodes().map((i) => layout.node(i)).map(({ x, y, width, height }) =>
    ({ left: x - width / 2, right: x + width / 2, top: y - height / 2, bottom: y + height / 2 }));
  layout.edges().forEach((edge) => layout.edge(edge).points.forEach(({ x, y }) =>
    boxes.push({ left: x, right: x, top: y, bottom: y })));
  const least = (side) => Math.floor(Math.min(...boxes.map((box) => box[side]))) - MARGIN;
  const most = (side) => Math.ceil(Math.max(...boxes.map((box) => box[side]))) + MARGIN;
  const left = least("left"), top = least("top");
  return { left, top, width: most("right") - left, height: most("bottom") - top };
}
function drawGraph(graph) {
  const host = byId("graph");
  host.replaceChildren();
  if (!graph.nodes.length) { el("p", {}, host, "No ops to draw."); return; }
  const layout = new dagre.graphlib.Graph().setDefaultEdgeLabel(() => ({}))
    .setGraph({ nodesep: 14, ranksep: 30 });
  const texts = graph.nodes.map((node) => [node.title.split("/").slice(-2).join("/") || node.type,
    node.opens ? node.source : typed(node.dtype, node.shape), node.decision]
    .filter((text, j, all) => text && all.indexOf(text) === j)
    .map((text) => text.length > 26 ? text.slice(0, 25) + "…" : text));
  texts.forEach((lines, i) => layout.setNode(i, { height: 12 + 16 * lines.length,
    width: Math.max(84, 20 + 7 * Math.max(...lines.map(({ length }, j) =>
      length + (j || !graph.nodes[i].opens ? 0 : 4)))) }));
  graph.edges.forEach(([from, to]) => layout.setEdge(from, to));
  dagre.layout(layout);
  const { left, top, width, height } = bounds(layout);
  const svg = el("svg:svg", { width, height, viewBox: `${left} ${top} ${width} ${height}`, "data-id": graph.id,
    role: "group", "aria-label": `step net of ${graph.names.at(-1) || R.name}, ${graph.side}` }, host);
  svg.style.setProperty("--least", width * .8 + "px");
  const edges = graph.edges.map(([from, to]) => {
    const [first, ...rest] = layout.edge(from, to).points;
    const ends = rest.map((p, i) => i < rest.length - 1  // round the corners at the points between
      ? `Q${p.x},${p.y} ${(p.x + rest[i + 1].x) / 2},${(p.y + rest[i + 1].y) / 2}` : `L${p.x},${p.y}`);
    return el("svg:path", { class: "edge", d: `M${first.x},${first.y}${ends.join("")}` }, svg);
  });
  const nodes = graph.nodes.map((node, i) => {
    const { x, y, width: w, height: h } = layout.node(i), lines = texts[i];
    const { color, ink } = R.decisions[node.decision] || R.decisions[""];
    const whole = [node.title || node.type, typed(node.dtype, node.shape)];
    const told = [...lines, ...whole.filter((text) => text && !lines.includes(text))];
    const group = el("svg:g", { class: "node" + (node.opens ? " door" : "") + " decision-"
      + (node.decision || "none"), transform: `translate(${x},${y - h / 2})`, "data-name": node.name,
      "data-type": node.type, tabindex: i ? -1 : 0, role: node.opens ? "button" : "img",
      "aria-label": told.join(", ") + (node.opens ? ", opens its step net" : "") }, svg);
    el("svg:rect", { x: -w / 2, width: w, height: h, rx: 7, fill: color }, group);
    lines.forEach((line, j) => {
      el("svg:text", { y: 20 + 16 * j, fill: ink, "aria-hidden": "true",
        class: j === 0 || line === node.decision ? "strong" : "" }, group, line);
      group.append(" ");  // lines are words apart, as in the label
    });
    if (node.opens) {
      el("svg:path", { class: "arrow", d: `M${w / 2 - 18},13h9l-4.5,6z`, fill: ink }, group);
    }
    const mine = edges.filter((_, j) => graph.edges[j].includes(i));
    const tell = (px, py, aloud) => {
      mine.forEach((edge) => edge.classList.add("near"));
      showTip(px, py, [["b", node.title || node.name],
        ["div", [node.type, typed(node.dtype, node.shape)].filter(Boolean).join(" ")],
        ["div", node.bytes !== null && size(node.bytes) + " each time"],
        ["div", node.source && node.source !== node.name && "line " + node.source],
        ["div", node.decision && "decision: " + node.decision], ["div", node.reason],
        ["div", node.opens && "opens its step net"]], aloud);
    };
    const untell = () => { hideTip(); mine.forEach((edge) => edge.classList.remove("near")); };
    group.addEventListener("mousemove", (event) => tell(event.clientX, event.clientY));
    group.addEventListener("focus", () => tell(besides(group).right, besides(group).top, true));
    group.addEventListener("mouseleave", untell);
    group.addEventListener("blur", untell);
    if (node.opens) group.addEventListener("click", () => { hideTip(); open(node.opens); });
    group.addEventListener("keydown", (event) => {
      if (node.opens && (event.key === "Enter" || event.key === " ")) {
        hideTip();
        open(node.opens);
        byId("graph").querySelector(".node").focus();
      } else if (event.key.startsWith("Arrow")) move(i, event.key);
      else return;
      event.preventDefault();
    });
    return group;
  });
  const order = nodes.map((_, i) => i).sort((a, b) => layout.node(a).y - layout.node(b).y
    || layout.node(a).x - layout.node(b).x);
  function move(i, key) {  // left and right go through all, up and down to what stands there
    const across = { ArrowLeft: -1, ArrowRight: 1 }[key];
    const here = layout.node(i), sign = key === "ArrowUp" ? -1 : 1;
    const far = (j) => {
      const down = (layout.node(j).y - here.y) * sign;
      return down > 1 ? down + 3 * Math.abs(layout.node(j).x - here.x) : Infinity;
    };
    const below = order.reduce((a, b) => far(b) < far(a) ? b : a);
    const to = across ? order[order.indexOf(i) + across] : below;
    if (to === undefined || (!across && far(to) === Infinity)) return;
    nodes[i].setAttribute("tabindex", -1);
    nodes[to].setAttribute("tabindex", 0);
    nodes[to].focus();
  }
  const first = (layout.node(order[0]).x - left) * svg.getBoundingClientRect().width / width;
  host.scrollLeft = svg.getBoundingClientRect().left - host.getBoundingClientRect().left
    + host.scrollLeft + first - host.clientWidth / 2;
}
