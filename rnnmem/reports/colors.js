/* Colours, hatches and legends of the kinds: a hatch tells who cannot tell the colours apart. */
"use strict";
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
