// Graphs over time, as SVG.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 600, HEIGHT = 110;

function shape(name, attributes) {
  const e = document.createElementNS(SVG, name);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  return e;
}

// The next round number: 1, 2 or 5 times a power of ten.
export function round(n) {
  if (n <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(n));
  return [1, 2, 5, 10].map((m) => m * power).find((m) => m >= n);
}

// One graph: a title, the value now, and a curve. `format` makes a value text.
export class Graph {
  constructor(place, title, format, bad) {
    this.format = format;
    this.box = document.createElement("figure");
    this.box.className = "graph";
    this.alarming = bad;
    const head = document.createElement("h3");
    head.append(title);
    this.value = document.createElement("span");
    head.append(this.value);
    this.svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" });
    this.title = title;
    const axis = document.createElement("div");
    axis.className = "axis";
    this.from = document.createElement("span");
    this.to = document.createElement("span");
    this.to.textContent = "now";
    axis.append(this.from, this.to);
    this.box.append(head, this.svg, axis);
    place.append(this.box);
    this.points = [];
    this.svg.addEventListener("pointermove", (e) => this.point(e));
    this.svg.addEventListener("pointerleave", () => this.draw());
  }

  // `points`: [time, value] with times in milliseconds; `from` and `to` what the graph shows.
  show(points, from, to) {
    this.points = points.filter((p) => p[0] >= from);
    [this.start, this.end] = [from, to];
    this.draw();
  }

  x(t) { return ((t - this.start) / (this.end - this.start)) * WIDTH; }

  draw() {
    const most = round(Math.max(...this.points.map((p) => p[1]), 0));
    const y = (v) => HEIGHT - 2 - (v / most) * (HEIGHT - 8);
    const parts = [shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(most), y2: y(most) }),
      shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(most / 2), y2: y(most / 2) }),
      shape("line", { class: "grid", x1: 0, x2: WIDTH, y1: y(0), y2: y(0) })];
    // A pixel or two have the highest of their points: peaks stay. Where nobody looked the curve is broken.
    const runs = [];
    let run = null, before = -Infinity, column = -1;
    for (const [t, v] of this.points) {
      if (t - before > 5000) { run = []; runs.push(run); column = -1; }
      before = t;
      const x = Math.round(this.x(t) / 2);
      if (x === column) run[run.length - 1][1] = Math.max(run[run.length - 1][1], v);
      else run.push([this.x(t), v]);
      column = x;
    }
    for (const r of runs) {
      const line = r.map(([x, v], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y(v).toFixed(1)}`).join("");
      const last = r[r.length - 1][0].toFixed(1), first = r[0][0].toFixed(1);
      parts.push(shape("path", { class: "area", d: `${line}L${last} ${y(0)}L${first} ${y(0)}Z` }), shape("path", { class: "curve", d: line }));
    }
    this.svg.replaceChildren(...parts);
    const now = this.points.length ? this.points[this.points.length - 1][1] : 0;
    this.value.textContent = `${this.format(now)} · up to ${this.format(most)}`;
    this.svg.setAttribute("aria-label", `${this.title}: ${this.format(now)} now`);
    this.box.classList.toggle("bad", Boolean(this.alarming) && this.points.some((p) => p[1] > 0));
    const minutes = Math.round((this.end - this.start) / 60000);
    this.from.textContent = `${minutes} min ago`;
  }

  // Where the pointer is: that second's value.
  point(event) {
    const box = this.svg.getBoundingClientRect();
    const t = this.start + ((event.clientX - box.left) / box.width) * (this.end - this.start);
    const near = this.points.reduce((a, b) => (a && Math.abs(a[0] - t) <= Math.abs(b[0] - t) ? a : b), null);
    if (!near) return;
    this.draw();
    this.svg.append(shape("line", { class: "cursor", x1: this.x(near[0]), x2: this.x(near[0]), y1: 0, y2: HEIGHT }));
    this.value.textContent = `${new Date(near[0]).toLocaleTimeString([], { hourCycle: "h23" })}: ${this.format(near[1])}`;
  }
}
