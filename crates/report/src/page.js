// Follows the pointer over both charts of a figure and shows the values of the bin under it.
for (const figure of document.querySelectorAll("figure[data-series]")) {
  const d = JSON.parse(figure.dataset.series), tip = figure.querySelector(".tip");
  const charts = [...figure.querySelectorAll(".chart")];
  const show = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * d.width;
    const ns = (x - d.left) / (d.width - d.left - d.right) * d.span_ns, i = Math.floor(ns / d.bin_ns);
    const inside = i >= 0 && i < d.rows[0][1].length;
    for (const chart of charts) {
      const cursor = chart.querySelector(".cursor");
      cursor.style.visibility = inside ? "visible" : "hidden";
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x);
    }
    tip.style.display = inside ? "block" : "none";
    if (!inside) return;
    const value = (v) => String(Number(v.toPrecision(3)));
    tip.textContent = (ns / 1e9).toPrecision(3) + " s\n" + d.rows.map(([name, values, unit]) => name.padEnd(14) + value(values[i]) + " " + unit).join("\n");
    const frame = figure.getBoundingClientRect(), at = event.clientX - frame.left;
    tip.style.left = (at > frame.width / 2 ? at - tip.offsetWidth - 14 : at + 14) + "px";
    tip.style.top = event.clientY - frame.top + 10 + "px";
  };
  const hide = () => { tip.style.display = "none"; for (const c of charts) c.querySelector(".cursor").style.visibility = "hidden"; };
  for (const chart of charts) { chart.addEventListener("pointermove", show); chart.addEventListener("pointerleave", hide); }
}
