"use strict";
// The page is complete without this: it adds the pointer's values, the map's switch, and what a tapped room says.
const short = v => Math.abs(v) >= 1e9 ? +(v / 1e9).toFixed(2) + " G" : Math.abs(v) >= 1e6 ? +(v / 1e6).toFixed(2) + " M"
  : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(+v.toPrecision(4));

for (const chart of document.querySelectorAll(".chart")) {
  const lines = JSON.parse(chart.querySelector("script").textContent);
  const svg = chart.querySelector("svg"), cursor = chart.querySelector(".cursor"), tip = chart.querySelector(".tip");
  const hide = () => { tip.hidden = true; cursor.setAttribute("x1", -9); cursor.setAttribute("x2", -9); };
  svg.addEventListener("pointermove", event => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    const near = lines.map(line => {
      let best = 0;
      line.px.forEach((p, i) => { if (Math.abs(p - x) < Math.abs(line.px[best] - x)) best = i; });
      return { line, i: best, px: line.px[best] };
    });
    const chosen = near.reduce((a, b) => Math.abs(a.px - x) <= Math.abs(b.px - x) ? a : b);
    cursor.setAttribute("x1", chosen.px); cursor.setAttribute("x2", chosen.px);
    tip.replaceChildren();
    const head = document.createElement("b");
    head.textContent = short(chosen.line.x[chosen.i]) + " frames";
    tip.append(head);
    for (const { line, i, px } of near) {
      if (Math.abs(px - chosen.px) > 6) continue;
      const row = document.createElement("div"), key = document.createElement("span");
      key.className = "key " + line.colour;
      const spread = line.runs[i] > 1 ? " ± " + short(line.error[i]) + " (" + Math.round(line.runs[i]) + " runs)" : "";
      row.append(key, (lines.length > 1 ? line.label + ": " : "") + short(line.y[i]) + spread);
      tip.append(row);
    }
    tip.hidden = false;
    const left = event.clientX - chart.getBoundingClientRect().left;
    const right = left > chart.clientWidth / 2;
    tip.style.left = right ? "auto" : left + 14 + "px";
    tip.style.right = right ? chart.clientWidth - left + 14 + "px" : "auto";
  });
  svg.addEventListener("pointerleave", hide);
}

for (const button of document.querySelectorAll(".switch button")) {
  button.addEventListener("click", () => {
    const section = button.closest("section");
    section.classList.toggle("often", button.value === "often");
    for (const other of section.querySelectorAll(".switch button")) other.setAttribute("aria-pressed", other === button);
  });
}

for (const room of document.querySelectorAll(".room")) {
  const say = () => {
    const said = room.closest(".card").querySelector(".said");
    if (said) said.textContent = room.querySelector("title")?.textContent ?? room.title;
  };
  room.addEventListener("pointerenter", say);
  room.addEventListener("focus", say);
}
