// Values under the pointer. Everything is drawn without this script; it only adds reading.
for (const figure of document.querySelectorAll(".chart")) {
  const { series, frame, x: xLabel, unit } = JSON.parse(figure.dataset.points);
  const svg = figure.querySelector("svg");
  const cross = document.createElementNS("http://www.w3.org/2000/svg", "line");
  cross.setAttribute("class", "cross");
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  figure.append(tip);
  const nearest = (points, x) =>
    points.reduce((best, point) => (Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best));
  const number = (value) => value.toLocaleString("en", { maximumSignificantDigits: 4 });
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const place = Math.min(Math.max((event.clientX - box.left) * scale, frame.left), frame.right);
    const x = frame.xLow + ((place - frame.left) / (frame.right - frame.left)) * (frame.xHigh - frame.xLow);
    for (const [name, value] of Object.entries({ x1: place, x2: place, y1: frame.top, y2: frame.bottom })) {
      cross.setAttribute(name, value);
    }
    svg.append(cross);
    tip.replaceChildren();
    const head = document.createElement("div");
    head.textContent = `${xLabel} ${number(x)}`;
    tip.append(head);
    for (const one of series.filter((one) => one.points.length)) {
      const line = document.createElement("div");
      line.textContent = `${one.name}: ${number(nearest(one.points, x)[1])}${unit}`;
      line.style.color = `var(--c${one.colour})`;
      tip.append(line);
    }
    tip.hidden = false;
    const left = place / scale + (place > (frame.left + frame.right) / 2 ? -tip.offsetWidth - 12 : 12);
    tip.style.left = `${left}px`;
    tip.style.top = "40px";
  });
  svg.addEventListener("pointerleave", () => {
    tip.hidden = true;
    cross.remove();
  });
}
