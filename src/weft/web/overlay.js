// The picture: where peers stand, the links between them, and events on their way.
//
// Links attract and all peers repel each other. Each frame moves peers for a few milliseconds at
// most, and once the picture has settled nothing moves, so that the page is idle. Peers and links
// are in one layer and events in another, so that an event on its way repaints only its own layer.

const BUDGET_MS = 5;      // of each frame, for moving peers
const FRAME_MS = 30;
const COOLING = 0.97;
const STILL = 0.02;
const STEP_MS = 130;      // time to show an event on one link
const FLOW_MAX = 400;     // steps shown at a time
const LINES_MAX = 1500;   // more lines make one grey area, and take long to paint

export class Overlay {
  constructor(canvas, moving, onChoose) {
    this.canvas = canvas;
    this.moving = moving;
    this.changed = true;      // peers and links must be painted again
    this.every = 1;           // one line in so many is drawn
    this.spots = new Map();   // n -> {x, y}, in units of the picture
    this.figures = new Map(); // n -> figure
    this.topic = "";
    this.chosen = null;
    this.heat = 0;
    this.flow = [];           // {from, to, begins}
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.scheduled = false;
    this.timer = null;
    this.after = [];          // called once the next frame is drawn
    canvas.addEventListener("click", (event) => onChoose(this.nearest(event)));
    new ResizeObserver(() => this.redraw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
      this.colours = null;
      this.redraw();
    });
  }

  show(figures) {
    this.figures = new Map(figures.map((figure) => [figure.n, figure]));
    // A single peer is shown with all peers that it knows; nothing else is known of those here.
    const known = new Set(this.figures.keys());
    if (figures.length === 1) {
      for (const n of [...figures[0].view, ...Object.values(figures[0].links).flat()]) known.add(n);
    }
    let moved = false;
    for (const n of known) if (!this.spots.has(n)) { this.place(n, figures.length === 1); moved = true; }
    for (const n of this.spots.keys()) if (!known.has(n)) { this.spots.delete(n); moved = true; }
    if (moved) this.heat = Math.max(this.heat, 1);
    this.edges = null;
    this.springs = null;
    this.redraw();
  }

  // Whether a peer is subscribed to the topic: it says so itself, or, if it cannot be asked, it is a
  // neighbour of another peer there.
  member(n) {
    if (this.figures.has(n)) return this.topic in this.figures.get(n).links;
    return [...this.figures.values()].some((figure) => figure.links[this.topic]?.includes(n));
  }

  members() {
    return [...this.spots.keys()].filter((n) => this.member(n)).length;
  }

  select(topic) {
    this.topic = topic;
    this.edges = null;
    this.redraw();
  }

  choose(n) {
    this.chosen = n;
    this.edges = null;
    this.redraw();
  }

  // A fixed spiral, so that every page begins with the same picture.
  place(n, near) {
    // Peers that come and go have ever higher numbers; around a single one they stay near.
    const turn = n * 2.39996, far = 0.06 * Math.sqrt((near ? n % 64 : n) + 0.5);
    this.spots.set(n, { x: far * Math.cos(turn), y: far * Math.sin(turn) });
  }

  pass(events) {
    if (this.still.matches) return;
    const now = performance.now();
    for (const [topic, , reached] of events) {
      if (this.topic && topic !== this.topic) continue;
      const hops = new Map(reached);
      for (const [n, hop] of reached) {
        if (this.flow.length >= FLOW_MAX) break;
        // The frame does not say over which link an event came: probably from a neighbour that it
        // reached one hop earlier.
        const linked = this.figures.get(n)?.links[topic] ?? [];
        const from = linked.find((other) => hops.get(other) === hop - 1) ?? n;
        this.flow.push({ from, to: n, begins: now + hop * STEP_MS });
        // If a single peer is shown, draw its own events on the way to its neighbours as well.
        if (hop === 0 && this.figures.size === 1) {
          for (const to of linked) this.flow.push({ from: n, to, begins: now + STEP_MS });
        }
      }
    }
    if (this.flow.length) this.draw();
  }

  links() {
    if (this.edges) return this.edges;
    const seen = new Set(), edges = [];
    for (const figure of this.figures.values()) {
      const others = this.topic ? figure.links[this.topic] ?? [] : figure.view;
      for (const other of others) {
        if (!this.spots.has(other)) continue;
        const low = Math.min(figure.n, other), high = Math.max(figure.n, other);
        const key = low * 1048576 + high;
        if (!seen.has(key)) { seen.add(key); edges.push([low, high]); }
      }
    }
    // A part of many lines, always the same, and all of the chosen peer.
    this.every = Math.ceil(edges.length / LINES_MAX);
    this.edges = edges.filter(([low, high]) => (low * 31 + high) % this.every === 0
      || low === this.chosen || high === this.chosen);
    return this.edges;
  }

  // The attracting pairs: links of all topics, which stay, since views change all the time.
  pulls() {
    if (this.springs) return this.springs;
    const pulls = [];
    for (const figure of this.figures.values()) {
      const linked = new Set(Object.values(figure.links).flat());
      for (const other of linked.size ? linked : figure.view) {
        if (this.spots.has(other)) pulls.push(figure.n, other);
      }
    }
    return (this.springs = pulls);
  }

  move() {
    const until = performance.now() + BUDGET_MS;
    const names = [...this.spots.keys()], spots = [...this.spots.values()];
    const at = new Map(names.map((n, place) => [n, place]));
    const pulls = this.pulls(), count = spots.length;
    const apart = 0.02 / Math.sqrt(count || 1);
    do {
      const dx = new Float64Array(count), dy = new Float64Array(count);
      for (let i = 0; i < count; i++) {
        const a = spots[i];
        for (let j = i + 1; j < count; j++) {
          const x = a.x - spots[j].x, y = a.y - spots[j].y;
          const push = apart / (x * x + y * y + 0.0005);
          dx[i] += x * push; dy[i] += y * push; dx[j] -= x * push; dy[j] -= y * push;
        }
        dx[i] -= a.x * 0.6; dy[i] -= a.y * 0.6;
      }
      const pull = 6 / (1 + pulls.length / (2 * count || 1));
      for (let k = 0; k < pulls.length; k += 2) {
        const i = at.get(pulls[k]), j = at.get(pulls[k + 1]);
        const x = (spots[i].x - spots[j].x) * pull * 0.1, y = (spots[i].y - spots[j].y) * pull * 0.1;
        dx[i] -= x; dy[i] -= y; dx[j] += x; dy[j] += y;
      }
      for (let i = 0; i < count; i++) {
        const far = Math.hypot(dx[i], dy[i]) || 1, step = Math.min(far, 0.5) * 0.12 * this.heat;
        spots[i].x += (dx[i] / far) * step;
        spots[i].y += (dy[i] / far) * step;
      }
      this.heat *= COOLING;
    } while (this.heat > STILL && performance.now() < until);
  }

  redraw() {
    this.changed = true;
    this.draw();
  }

  draw(after) {
    if (after) this.after.push(after);
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      if (this.heat > STILL) { this.move(); this.changed = true; }
      if (this.changed) this.paint();
      this.paintFlow();
      // A message that is posted during a frame arrives after that frame was painted.
      const done = this.after.splice(0);
      if (done.length) {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => { done.forEach((each) => each()); channel.port1.close(); };
        channel.port2.postMessage(0);
      }
      // Thirty frames a second are enough for motion; a message of the socket is painted at once.
      if (this.heat > STILL || this.flow.length) {
        this.timer ??= setTimeout(() => { this.timer = null; this.draw(); }, FRAME_MS);
      }
    });
  }

  scale() {
    let low = { x: Infinity, y: Infinity }, high = { x: -Infinity, y: -Infinity };
    for (const spot of this.spots.values()) {
      low = { x: Math.min(low.x, spot.x), y: Math.min(low.y, spot.y) };
      high = { x: Math.max(high.x, spot.x), y: Math.max(high.y, spot.y) };
    }
    const width = this.canvas.clientWidth, height = this.canvas.clientHeight, edge = 24;
    const by = Math.min((width - 2 * edge) / Math.max(0.1, high.x - low.x),
                        (height - 2 * edge) / Math.max(0.1, high.y - low.y));
    const x0 = width / 2 - by * (low.x + high.x) / 2, y0 = height / 2 - by * (low.y + high.y) / 2;
    return (spot) => [x0 + by * spot.x, y0 + by * spot.y];
  }

  colour(name) {
    if (!this.colours) {
      const style = getComputedStyle(document.documentElement);
      this.colours = Object.fromEntries(["peer", "member", "link", "chosen", "flow", "bad", "text"]
        .map((each) => [each, style.getPropertyValue(`--${each}`).trim()]));
    }
    return this.colours[name];
  }

  cleared(canvas) {
    const pen = canvas.getContext("2d"), ratio = devicePixelRatio || 1;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return pen;
  }

  paint() {
    this.changed = false;
    const pen = this.cleared(this.canvas), where = this.scale(), points = new Map();
    this.points = points;
    for (const [n, spot] of this.spots) points.set(n, where(spot));
    const edges = this.links();
    pen.strokeStyle = this.colour("link");
    pen.lineWidth = edges.length > 500 ? 0.5 : 1;
    pen.beginPath();
    for (const [low, high] of edges) {
      const from = points.get(low), to = points.get(high);
      pen.moveTo(from[0], from[1]);
      pen.lineTo(to[0], to[1]);
    }
    pen.stroke();
    const size = this.spots.size > 150 ? 3.5 : 6;
    const groups = { peer: [], member: [], bad: [] };
    for (const [n, point] of points) {
      const figure = this.figures.get(n);
      if (figure?.isolated) groups.bad.push(point);
      else if (this.topic ? this.member(n) : figure) groups.member.push(point);
      else groups.peer.push(point);
    }
    for (const [name, group] of Object.entries(groups)) {
      pen.fillStyle = this.colour(name);
      pen.beginPath();
      for (const [x, y] of group) { pen.moveTo(x + size, y); pen.arc(x, y, size, 0, 7); }
      pen.fill();
    }
    const chosen = points.get(this.chosen);
    if (chosen) {
      pen.strokeStyle = this.colour("chosen");
      pen.lineWidth = 3;
      pen.beginPath();
      pen.arc(chosen[0], chosen[1], size + 4, 0, 7);
      pen.stroke();
    }
  }

  paintFlow() {
    const now = performance.now(), points = this.points ?? new Map();
    this.flow = this.flow.filter((step) => now < step.begins + STEP_MS);
    const pen = this.cleared(this.moving);
    pen.strokeStyle = this.colour("flow");
    pen.lineWidth = 2;
    pen.beginPath();
    for (const { from, to, begins } of this.flow) {
      const a = points.get(from), b = points.get(to), part = (now - begins) / STEP_MS;
      if (!a || !b || part < 0) continue;
      pen.moveTo(a[0], a[1]);
      pen.lineTo(a[0] + (b[0] - a[0]) * part, a[1] + (b[1] - a[1]) * part);
      if (from === to) { pen.moveTo(b[0] + 12 * part, b[1]); pen.arc(b[0], b[1], 12 * part, 0, 7); }
    }
    pen.stroke();
  }

  nearest(event) {
    const where = this.scale();
    let best = null, least = 20;
    for (const [n, spot] of this.spots) {
      const [x, y] = where(spot), far = Math.hypot(x - event.offsetX, y - event.offsetY);
      if (far < least) { best = n; least = far; }
    }
    return best;
  }
}
