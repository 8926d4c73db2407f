/* The page from its head to its foot; timelines and step nets stand in files of their own. */
"use strict";
/* ---- head */
byId("name").textContent = R.name;
document.title = R.name + " - rnnmem";
byId("headline").textContent = R.headline;
R.figures.forEach(([what, figure, beside]) => {
  const box = el("div", {}, byId("figures"));
  el("dt", {}, box, what);
  const told = el("dd", {}, box);
  el("b", {}, told, figure);
  el("span", { class: "soft" }, told, beside);
});

/* ---- what the peaks consist of */
const SHOWN = 12;
R.sides.forEach((side) => {
  const box = el("div", {}, byId("parts"));
  const most = Math.max(1, ...side.rows.map((row) => row.bytes));
  const becomes = side.name === "before" && R.sides.length > 1;
  el("h3", {}, box, side.name + ": " + size(side.peak));
  const table = el("table", { "aria-label": "the peak " + side.name }, box);
  const head = el("tr", {}, el("thead", {}, table)), body = el("tbody", {}, table);
  [["bytes", "number"], ["share", ""], ["blob", ""], [becomes ? "becomes" : "decision", "wide"]]
    .forEach(([text, style]) => el("th", { scope: "col", class: style }, head, text));
  side.rows.forEach((row, number) => {
    const line = el("tr", number >= SHOWN ? { hidden: "" } : {}, body);
    el("td", { class: "number" }, line, size(row.bytes));
    const share = swatch(row.kind, el("td", { class: "share" }, line), 240, 11);
    share.className = "";
    share.style.width = Math.max(1.5, 100 * row.bytes / most) + "%";
    const cell = el("td", {}, line), details = el("details", {}, cell);
    el("code", {}, el("summary", {}, details), row.title);
    el("p", {}, details, row.names.join(", ") + (row.more ? ` and ${row.more} more` : ""));
    if (row.reason) el("p", {}, details, row.reason);
    const where = el("div", { class: "where" }, cell,
      [row.where, row.lines].filter(Boolean).join(" · "));
    el("b", { class: "narrow" }, where, " " + (row.decision || row.kind));
    el("td", { class: "wide" }, line, row.decision || row.kind);
  });
  if (side.rows.length > SHOWN) {
    const more = el("button", { type: "button", class: "more" }, box,
      `show ${side.rows.length - SHOWN} smaller`);
    more.addEventListener("click", () => {
      [...body.rows].forEach((line) => { line.hidden = false; });
      more.remove();
    });
  }
});

/* ---- step nets */
const loops = R.sides.some((side) => side.spans.length);
const doors = R.graphs.some((graph) => graph.nodes.some((node) => node.opens));
byId("runs").textContent = [
  loops ? "What runs once an iteration." : "The ops of the function, which has no loop.",
  doors ? `A node with an arrow opens ${loops ? "its own step net" : "the ops of that layer"}.` : "",
  "With the keyboard, arrows go from node to node."].filter(Boolean).join(" ");
R.legend.forEach(([decision, told]) => {
  const one = el("li", {}, byId("residuals"));
  const color = decision ? R.decisions[decision].color : "var(--node)";
  el("i", { class: "swatch", style: "background:" + color }, one);
  one.append(told);
});

/* ---- the rest */
R.resident.forEach(([kind, bytes, meaning]) => {
  const row = el("tr", {}, byId("resident").querySelector("tbody"));
  el("td", { class: "number" }, row, size(bytes));
  el("td", {}, row, kind);
  el("td", { class: "soft" }, row, meaning);
});
R.notes.forEach((note) => el("li", {}, byId("notes").querySelector("ul"), note));
R.made.forEach(([what, told]) => {
  el("dt", {}, byId("made"), what);
  el("dd", {}, byId("made"), told);
});
[["resident", R.resident], ["notes", R.notes], ["step-nets", R.graphs]]
  .forEach(([id, list]) => { if (!list.length) byId(id).remove(); });

legends();
drawTimelines();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTimelines);
if (R.graphs.length) open((R.graphs.find((one) => one.id === "after") || R.graphs[0]).id);
