// What is looked at: the part of time, the rows and where they stand, the chosen event; and the address that says so.

const NEAR = 4;  // pixels by which a click may miss

class View {
  constructor(launches) {
    this.launches = launches;
    this.unit = "ns";
    this.sections = launches.map((launch) => rowsOf(launch));
    this.top = 0;
    this.chosen = this.hovered = this.found = this.pin = null;
    this.ends = [];
    this.open = new Set();
    this.lanesOf = launches.map(() => null);
    this.lay();
    this.fit();
  }

  // Units of the axis in a clock of a launch.
  scale(launch) { return this.unit === "clocks" ? 1 : 1000 / launch.head.mhz; }

  get end() { return Math.max(...this.launches.map((launch) => launch.clocks * this.scale(launch)), 1); }

  fit() { this.from = 0; this.to = this.end * 1.02; }

  // Give rows their places below each other.
  lay() {
    this.rows = [];
    let y = AXIS + 2;
    this.sections.forEach((rows) => {
      for (const row of rows) {
        if (row.kind === "role") {
          const open = this.open.has(`${row.launch.number}:${row.key}`);
          if (row.isOpen !== open) {
            row.lanes = open ? row.expanded() : row.collapsed();
            row.lanes.forEach((lane) => (lane.row = row));
            row.isOpen = open;
          }
        }
        row.y = y;
        row.shown = true;
        let inside = 0;
        for (const lane of row.lanes) { lane.y = inside; inside += lane.height + (lane.style === THIN ? 1 : 1); }
        row.height = { launch: HEAD, slot: SLOT, pins: PINS, series: SERIES }[row.kind] ?? Math.max(inside, 14);
        y += row.height + GAP;
        this.rows.push(row);
      }
      y += 10;
    });
    this.total = y;
    this.lanesOf.fill(null);
  }

  // The lane that shows an event; arrivals are on the lane of their warp.
  laneOf(launch, event) {
    let map = this.lanesOf[launch.number];
    if (!map) {
      map = this.lanesOf[launch.number] = { lanes: [], of: new Int16Array(launch.count).fill(-1) };
      for (const row of this.sections[launch.number]) for (const lane of row.lanes) {
        const number = map.lanes.push(lane) - 1;
        for (const one of lane.events) map.of[one] = number;
        for (const span of lane.spans ?? []) for (const one of span.events) map.of[one] = number;
        if (lane.arrivals) for (const one of lane.arrivals) map.of[one] = number;
      }
    }
    return map.of[event] < 0 ? null : map.lanes[map.of[event]];
  }

  // What lies under a point of the canvas: {row, launch, event}, or with `pin`; event -1 where there is none.
  under(x, y, width) {
    const at = y + this.top, row = this.rows.find((one) => at >= one.y - GAP / 2 && at < one.y + one.height + GAP / 2);
    if (!row) return null;
    const launch = row.launch, scale = this.scale(launch), perPixel = (this.to - this.from) / width / scale;
    const time = this.from / scale + x * perPixel;
    if (row.kind === "pins") {
      const number = launch.head.pins.findIndex((pin) => Math.abs(pin.clocks - time) < 8 * perPixel);
      return { row, launch, event: -1, pin: number };
    }
    const lane = row.lanes.find((one) => at - row.y >= one.y - 1 && at - row.y < one.y + one.height + 1);
    return { row, launch, lane, time, event: lane ? this.near(lane, time, perPixel * NEAR, at - row.y - lane.y) : -1 };
  }

  near(lane, time, reach, inside) {
    const { launch } = lane;
    if (lane.arrivals && lane.style === PLAIN && inside > lane.height - 7) {
      let best = -1, least = reach * 1.5;
      for (const one of lane.arrivals) {
        const away = Math.abs(launch.start[one] - time);
        if (away < least) { least = away; best = one; }
      }
      if (best >= 0) return best;
    }
    let at = firstAbove(lane.reach, time - reach), best = -1, least = Infinity;
    for (; at < lane.starts.length && lane.starts[at] <= time + reach; at++) {
      const away = Math.max(lane.starts[at] - time, time - lane.ends[at], 0);
      if (away < least) { least = away; best = at; }
      if (!away) break;
    }
    if (best < 0) return -1;
    const inSpan = (lane.spans?.[best].events ?? []).find((one) => { const busy = busyOf(launch, one); return busy && busy[0] <= time && time < busy[1]; });
    return inSpan ?? lane.ids[best];
  }

  choose(launch, event) {
    this.pin = null;
    if (event < 0 || !launch) { this.chosen = null; this.ends = []; return; }
    this.chosen = { launch, event };
    const { first, next } = endedBy(launch);
    this.ends = [];
    for (let one = first[event]; one >= 0 && this.ends.length < 64; one = next[one]) this.ends.push(one);
  }

  zoom(factor, around) {
    const least = 2 * this.scale(this.launches[0]), most = this.end * 4;
    const wide = Math.min(most, Math.max(least, (this.to - this.from) * factor)), share = (around - this.from) / (this.to - this.from);
    this.from = around - wide * share;
    this.to = this.from + wide;
    this.keep();
  }

  pan(by) {
    this.from += by;
    this.to += by;
    this.keep();
  }

  // Keep some of the run in view.
  keep() {
    const most = this.end * 4;
    if (this.to - this.from > most) { this.from = (this.from + this.to - most) / 2; this.to = this.from + most; }
    const wide = this.to - this.from, low = -wide * 0.5, high = this.end + wide * 0.5;
    if (this.from < low) { this.from = low; this.to = low + wide; }
    if (this.to > high) { this.to = high; this.from = high - wide; }
  }

  // Bring an event into view, in time and height, with some of what is around it.
  show(launch, event, height, close = false) {
    const scale = this.scale(launch), from = launch.start[event] * scale, to = launch.end[event] * scale, wide = this.to - this.from;
    if (close || to < this.from || from > this.to || to - from > wide) {
      const room = close ? Math.max((to - from) * 3, 60 * scale) : Math.max(wide, (to - from) * 1.5), middle = (from + to) / 2;
      this.from = middle - room / 2;
      this.to = middle + room / 2;
      this.keep();
    }
    const lane = this.laneOf(launch, event);
    if (lane && (lane.row.y < this.top + AXIS || lane.row.y + lane.row.height > this.top + height)) {
      this.top = Math.max(0, Math.min(this.total - height, lane.row.y - height / 3));
    }
  }

  // The neighbour of the chosen event on its lane (`along`), or in the next lane at the same time (`across`).
  neighbour(along, across) {
    if (!this.chosen) {
      const row = this.rows.find((one) => one.kind === "role");
      return row ? { launch: row.launch, event: row.lanes[0].ids[Math.max(0, firstAbove(row.lanes[0].reach, this.from / this.scale(row.launch)))] ?? row.lanes[0].ids[0] } : null;
    }
    const { launch, event } = this.chosen, lane = this.laneOf(launch, event);
    if (!lane) return null;
    if (along) {
      const at = lane.spans ? lane.spans.findIndex((span) => span.events.includes(event)) : lane.ids.indexOf(event);
      if (at < 0) {  // an arrival: on to the bar of its warp
        const near = Math.max(0, Math.min(lane.ids.length - 1, firstAbove(lane.starts, launch.start[event]) - (along < 0 ? 1 : 0)));
        return { launch, event: lane.ids[near] };
      }
      const id = lane.ids[at + along];
      return id === undefined ? null : { launch, event: id };
    }
    const lanes = this.rows.flatMap((row) => row.lanes).filter((one) => one.ids.length), other = lanes[lanes.indexOf(lane) + across];
    if (!other) return null;
    const time = (launch.start[event] * this.scale(launch)) / this.scale(other.launch);
    return { launch: other.launch, event: other.ids[Math.min(other.ids.length - 1, firstAbove(other.reach, time))] };
  }

  // -- the address -----------------------------------------------------------------------------------------------

  get address() {
    const parts = [`t=${this.from.toFixed(2)},${this.to.toFixed(2)}`];
    if (this.unit !== "ns") parts.push(`u=${this.unit}`);
    if (this.chosen) parts.push(`e=${this.chosen.launch.number}:${this.chosen.event}`);
    if (this.open.size) parts.push(`o=${[...this.open].map(encodeURIComponent).join(",")}`);
    if (this.found) parts.push(`q=${encodeURIComponent(this.found.text)}`);
    if (this.top) parts.push(`y=${Math.round(this.top)}`);
    return `#${parts.join("&")}`;
  }

  // Take what an address says; gives back what is searched for.
  follow(address) {
    const parts = new Map(address.replace(/^#/, "").split("&").map((part) => part.split(/=(.*)/s).slice(0, 2)));
    if (parts.get("u") === "clocks") this.unit = "clocks";
    this.fit();
    const open = (parts.get("o") ?? "").split(",").filter(Boolean).map(decoded);
    this.open = new Set(open);
    this.lay();
    const [from, to] = (parts.get("t") ?? "").split(",").map(Number);
    if (to > from) { this.from = from; this.to = to; this.keep(); }
    const [number, event] = (parts.get("e") ?? "").split(":").map(Number), launch = this.launches[number];
    if (launch && event >= 0 && event < launch.count) this.choose(launch, event); else this.choose(null, -1);
    this.top = Math.max(0, Number(parts.get("y")) || 0);
    return decoded(parts.get("q") ?? "");
  }
}

// A part of an address; as it stands where somebody cut or mistyped it.
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

// Events whose words match a text: their name, opcode, role, barrier, file and line.
class Search {
  constructor(launches, text) {
    this.text = text;
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.marks = launches.map((launch) => {
      const marks = new Uint8Array(launch.count), known = new Map(), { words: names, places, barriers, roles } = launch.head;
      for (let at = 0; at < launch.count; at++) {
        let key = (launch.kind[at] * names.length + launch.what[at]) * places.length + launch.place[at];
        key = ((key * barriers.length + launch.barrier[at]) * roles.length + launch.role[at]) * 512 + launch.stage[at] + 1;
        let yes = known.get(key);
        if (yes === undefined) {
          const place = placeOf(launch, at);
          const said = `${KINDS[launch.kind[at]]} ${launch.kind[at] === RUN ? "instructions" : nameOf(launch, at)} ${launch.head.words[launch.what[at]]} ${place.opcode} ${place.file}:${place.line} ${roleOf(launch, at)} ${barrierOf(launch, at)}`.toLowerCase();
          known.set(key, (yes = words.every((word) => said.includes(word)) ? 1 : 0));
        }
        marks[at] = yes;
      }
      return marks;
    });
    this.count = this.marks.reduce((sum, marks) => sum + marks.reduce((all, one) => all + one, 0), 0);
  }

  has(launch, event) { return this.marks[launch.number][event] === 1; }

  // The next event that matches, after the chosen one or from the start; `way` 1 or -1.
  next(launches, chosen, way) {
    const lengths = launches.map((launch) => launch.count), all = lengths.reduce((a, b) => a + b, 0);
    let number = chosen ? chosen.launch.number : way > 0 ? 0 : launches.length - 1;
    let event = chosen ? chosen.event : way > 0 ? -1 : lengths[number];
    for (let step = 0; step < all; step++) {
      event += way;
      if (event >= lengths[number]) { number = (number + 1) % launches.length; event = 0; }
      if (event < 0) { number = (number + launches.length - 1) % launches.length; event = lengths[number] - 1; }
      if (this.marks[number][event]) return { launch: launches[number], event };
    }
    return null;
  }
}
