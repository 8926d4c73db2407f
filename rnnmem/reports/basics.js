/* What all parts of the page use: data, elements, sizes, the tip that tells of what is there. */
"use strict";
const byId = (id) => document.getElementById(id);
const R = JSON.parse(byId("data").textContent);
const SVG = byId("ns").namespaceURI;
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function el(tag, attributes, parent, text) {
  const made = tag.startsWith("svg:")
    ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}
/* Bytes as sizes.py's format_bytes prints them. */
function size(bytes) {
  if (bytes === null || bytes === undefined) return "?";
  const most = Math.abs(bytes), sign = bytes < 0 ? "-" : "";
  if (most < 1024) return bytes + " B";
  return sign + (most < 1048576 ? tenths(most, 1024) + " KiB" : tenths(most, 1048576) + " MiB");
}
/* A quotient with one decimal, a tie to the even one: in whole numbers, as toFixed rounds otherwise. */
function tenths(bytes, unit) {
  const whole = Math.floor(bytes / unit), rest = 10 * (bytes - whole * unit);
  let tenth = Math.floor(rest / unit);
  const over = 2 * (rest - tenth * unit) - unit;
  if (over > 0 || (over === 0 && tenth % 2)) tenth += 1;
  return whole + Math.floor(tenth / 10) + "." + tenth % 10;
}
function typed(dtype, shape) {
  if (!dtype) return "";
  return `${dtype}[${shape === null ? "?" : shape.map((d) => d === null ? "?" : d).join(",")}]`;
}
/* Lines are [tag, text] or nothing; what is shown is said too, where the keyboard asks for it. */
function showTip(x, y, lines, aloud) {
  const tip = byId("tip"), told = lines.filter((line) => line && line[1]);
  tip.replaceChildren();
  told.forEach(([tag, text]) => el(tag, {}, el("div", {}, tip), text));
  tip.style.cssText = "display:block;left:0;top:0";  // where nothing narrows it
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  const below = y + 18 + box.height <= innerHeight;
  tip.style.top = Math.max(4, below ? y + 18 : y - box.height - 12) + "px";
  if (aloud) byId("said").textContent = told.map((line) => line[1]).join(". ");
}
const hideTip = () => { byId("tip").style.display = "none"; };
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
const besides = (element) => element.getBoundingClientRect();
