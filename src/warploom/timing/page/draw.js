// Paints rows on the canvas. What is narrower than a pixel is painted as shares of classes, taken from running sums,
// so that a frame costs the same however many events it shows; and as one picture for all lanes, not bar by bar.

const GAP = 7, HEAD = 26, SLOT = 20, SERIES = 34, AXIS = 24, PINS = 20;
const SHARES = 8;  // shades of a colour, by how much of a pixel is taken
const ARROWS = 160;  // are drawn at most; with more waits in view, only those of the selected event

class Painter {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.colours();
  }

  // Colours of the style sheet, read anew when the theme changes.
  colours() {
    const style = getComputedStyle(document.documentElement), read = (name) => style.getPropertyValue(name).trim();
    this.fill = CLASSES.map((name) => read(`--${name}`));
    this.text = CLASSES.map((name) => read(`--${name}-text`) || read("--ink"));
    this.own = Object.fromEntries(
      ["paper", "band", "line", "ink", "soft", "arrow", "chosen", "found", "error", "warning", "performance", "area", "area-soft"]
        .map((name) => [name, read(`--${name}`)]));
    this.shares = this.fill.map((colour) => Uint32Array.from({ length: SHARES + 1 }, (_, at) => mixed(colour, read("--paper"), at / SHARES)));
    this.areas = ["area", "area-soft"].map((name) => mixed(this.own[name], this.own.paper, 1));
    this.font = read("--font");
  }

  resize() {
    const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
    if (this.canvas.width !== Math.round(box.width * ratio) || this.canvas.height !== Math.round(box.height * ratio)) {
      this.canvas.width = Math.round(box.width * ratio);
      this.canvas.height = Math.round(box.height * ratio);
    }
    this.width = box.width;
    this.height = box.height;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  // view: {rows, from, to, top, scale(launch), chosen, found, marked}. Times of a view are in its unit.
  paint(view) {
    this.resize();
    const { context } = this;
    this.view = view;
    context.fillStyle = this.own.paper;
    context.fillRect(0, 0, this.width, this.height);
    context.font = `11px ${this.font}`;
    context.textBaseline = "middle";
    this.grid();
    const shown = view.rows.filter((row) => row.y + row.height - view.top >= AXIS && row.y - view.top <= this.height);
    const lines = (row) => (row.series ? row.height : row.lanes.length);
    this.sheet ??= new Sheet();
    this.sheet.clear(Math.ceil(this.width), shown.reduce((sum, row) => sum + lines(row), 0));
    for (const row of shown) this.row(row, row.y - view.top);
    this.sheet.paint(context);
    this.arrows();
    this.chosen();
    this.axis();
  }

  x(time) { return ((time - this.view.from) / (this.view.to - this.view.from)) * this.width; }

  grid() {
    const { context } = this, { ticks } = ticksOf(this.view.from, this.view.to, this.width);
    context.fillStyle = this.own.band;
    for (const tick of ticks) context.fillRect(Math.round(this.x(tick)), AXIS, 1, this.height);
  }

  axis() {
    const { context } = this, { ticks, step } = ticksOf(this.view.from, this.view.to, this.width);
    context.fillStyle = this.own.paper;
    context.fillRect(0, 0, this.width, AXIS);
    context.fillStyle = this.own.line;
    context.fillRect(0, AXIS - 1, this.width, 1);
    context.fillStyle = this.own.soft;
    context.font = `11px ${this.font}`;
    context.textAlign = "left";
    for (const tick of ticks) {
      const x = Math.round(this.x(tick));
      context.fillRect(x, AXIS - 6, 1, 5);
      context.fillText(labelOf(tick, this.view.unit, step), x + 4, AXIS / 2);
    }
  }

  row(row, y) {
    const { context } = this;
    if (row.kind === "launch") {
      context.fillStyle = this.own.band;
      context.fillRect(0, y, this.width, row.height);
      const end = this.x(row.launch.clocks * this.view.scale(row.launch));
      context.fillStyle = this.own.line;
      context.fillRect(end, y, 1, row.height);
      return;
    }
    if (row.kind === "pins") return this.pins(row, y);
    if (row.series) return this.area(row, y);
    if (row.kind === "role") {
      context.fillStyle = this.own.line;
      context.globalAlpha = 0.5;
      context.fillRect(0, y + row.height + GAP / 2, this.width, 1);
      context.globalAlpha = 1;
    }
    for (const lane of row.lanes) this.lane(lane, y + lane.y);
  }

  // One lane: events as bars; where several fall on one pixel, their classes by their shares.
  lane(lane, y) {
    const { context, view } = this, { starts, ends, ids, launch } = lane, scale = view.scale(launch);
    const from = view.from / scale, to = view.to / scale, perPixel = (to - from) / this.width;
    const thin = lane.style === THIN, height = lane.height - (thin || lane.style === PLAIN ? 0 : 1);
    let at = firstAbove(lane.reach, from);
    const last = starts.length, pixels = this.sheet.lines(1, y, height);
    while (at < last && starts[at] < to) {
      const x0 = (starts[at] - from) / perPixel, x1 = (ends[at] - from) / perPixel;
      if (x1 - x0 >= 1.5) {
        this.bar(lane, at, Math.max(x0, -2), Math.min(x1, this.width + 2), y, height);
        at++;
        continue;
      }
      const pixel = Math.floor(x0), edge = from + (pixel + 1) * perPixel;
      let next = at + 1;
      if (next < last && starts[next] < edge) next = nextAbove(starts, edge, next);
      if (next - 1 > at && ends[next - 1] - starts[next - 1] >= 1.5 * perPixel) next--;  // only the last can reach further
      if (pixel >= 0) {
        const all = lane.most(at, next);
        pixels[pixel] = this.shares[lane.mostly][Math.max(2, Math.min(SHARES, Math.round((all / perPixel) * SHARES)))];
      }
      at = next;
    }
    if (lane.arrivals && lane.arrivals.length) this.arrivals(lane, y);
  }

  bar(lane, at, x0, x1, y, height) {
    const { context } = this, { launch } = lane, event = lane.ids[at], span = lane.spans && lane.spans[at], own = classOf(launch, event), width = Math.max(1, x1 - x0 - (x1 - x0 > 4 ? 1 : 0));
    context.fillStyle = this.fill[own];
    context.fillRect(x0, y, width, height);
    const found = this.view.found;
    if (own === CLASS["wait-ever"]) this.hatch(x0, y, width, height);
    if (span && launch.busyFor[event]) for (const one of span.events) this.busyPart(launch, one, y, height);
    if (found && !found.has(launch, event)) {
      context.fillStyle = this.own.paper;
      context.globalAlpha = 0.72;
      context.fillRect(x0, y, width, height);
      context.globalAlpha = 1;
    }
    if (width > 34 && height >= 8) {
      context.save();
      context.beginPath();
      context.rect(x0, y, width - 2, height);
      context.clip();
      context.fillStyle = this.text[own];
      context.font = `${height > 12 ? 11 : 8.5}px ${this.font}`;
      context.textAlign = "left";
      context.fillText(this.words(lane, event, span, width), Math.max(x0, 0) + 4, y + height / 2 + 0.5);
      context.restore();
    }
  }

  words(lane, event, span, width) {
    const { launch } = lane;
    if (lane.style === PHASES) return `${launch.phase[event]}`;
    const name = nameOf(launch, event);
    if (launch.kind[event] === WAIT && width < 110) return name.replace(/^wait for /, "");
    return span && span.events.length > 1 ? `${span.events.length} × ${name}` : name;
  }

  // The part of a product during which the tensor core works on it.
  busyPart(launch, event, y, height) {
    const [from, to] = busyOf(launch, event), scale = this.view.scale(launch);
    const x0 = this.x(from * scale), x1 = this.x(to * scale);
    if (x1 - x0 < 2) return;
    this.context.fillStyle = this.fill[CLASS.product];
    this.context.fillRect(x0, y + height - 3, x1 - x0 - 1, 3);
  }

  hatch(x0, y, width, height) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(x0, y, width, height);
    context.clip();
    context.strokeStyle = "#000";  // darker than the bar in both themes: its text is white
    context.globalAlpha = 0.3;
    context.lineWidth = 2;
    context.beginPath();
    for (let x = x0 - height; x < x0 + width; x += 8) { context.moveTo(x, y + height); context.lineTo(x + height, y); }
    context.stroke();
    context.restore();
  }

  // Arrivals as small triangles below a warp's bar.
  arrivals(lane, y) {
    const { context, view } = this, { launch, arrivals } = lane, scale = view.scale(launch);
    const from = view.from / scale, to = view.to / scale;
    let at = 0, high = arrivals.length;
    while (at < high) { const middle = (at + high) >> 1; if (launch.start[arrivals[middle]] < from) at = middle + 1; else high = middle; }
    if (lane.style === THIN) return;
    context.fillStyle = this.fill[CLASS.arrive];
    let beyond = -9;
    context.beginPath();
    for (; at < arrivals.length && launch.start[arrivals[at]] <= to; at++) {
      const x = this.x(launch.start[arrivals[at]] * scale);
      if (x - beyond < 2) {  // one mark a pixel: skip to the next pixel by search, not one by one
        const edge = launch.start[arrivals[at]] + ((to - from) / this.width) * 2;
        let low = at + 1, above = arrivals.length;
        while (low < above) { const middle = (low + above) >> 1; if (launch.start[arrivals[middle]] < edge) low = middle + 1; else above = middle; }
        at = low - 1;
        continue;
      }
      context.moveTo(x, y + lane.height - 5);
      context.lineTo(x + 4, y + lane.height);
      context.lineTo(x - 4, y + lane.height);
      beyond = x;
    }
    context.fill();
  }

  area(row, y) {
    const { context, view } = this, scale = view.scale(row.launch), height = row.height;
    context.fillStyle = this.own.band;
    context.fillRect(0, y, this.width, height);
    const perPixel = (view.to - view.from) / this.width / scale, wide = Math.ceil(this.width);
    const base = new Float64Array(wide), pixels = this.sheet.lines(height, y, height);
    row.series.forEach(({ steps }, number) => {
      const colour = this.areas[number], start = view.from / scale, scaled = height / (row.most || 1) / perPixel;
      let index = firstAbove(steps.times, start), before = steps.until(start, index);
      for (let x = 0; x < wide; x++) {
        const edge = start + (x + 1) * perPixel;
        index = nextAbove(steps.times, edge, index);
        const integral = steps.until(edge, index), low = Math.round(base[x]);
        base[x] += (integral - before) * scaled;
        before = integral;
        const high = Math.round(Math.min(height, base[x]));
        for (let line = height - high; line < height - low; line++) pixels[line * wide + x] = colour;
      }
    });
    if (row.outline) {
      context.strokeStyle = this.own.soft;
      context.beginPath();
      for (let x = 0; x <= this.width; x++) {
        const level = y + height - (row.outline.steps.at(view.from / scale + x * perPixel) / (row.most || 1)) * (height - 1) - 0.5;
        if (x) context.lineTo(x, level); else context.moveTo(x, level);
      }
      context.stroke();
    }
  }

  pins(row, y) {
    const { context, view } = this, scale = view.scale(row.launch);
    row.launch.head.pins.forEach((pin, number) => {
      const x = this.x(pin.clocks * scale), chosen = view.pin && view.pin.launch === row.launch && view.pin.number === number;
      context.fillStyle = context.strokeStyle = this.own[pin.severity] ?? this.own.warning;
      context.globalAlpha = chosen ? 0.9 : 0.35;
      context.fillRect(x - 0.5, y + 8, 1, this.height);
      context.globalAlpha = 1;
      context.beginPath();
      context.arc(x, y + 8, chosen ? 7 : 5.5, 0, 7);
      context.fill();
      context.fillStyle = this.own.paper;
      context.textAlign = "center";
      context.font = `bold 9px ${this.font}`;
      context.fillText("!", x, y + 8.5);
    });
  }

  // Where an event lies on the canvas: {x0, x1, y, height}, or null if no row shows it.
  boxOf(launch, event) {
    const lane = this.view.laneOf(launch, event);
    if (!lane || !lane.row.shown) return null;
    const scale = this.view.scale(launch);
    return { x0: this.x(launch.start[event] * scale), x1: this.x(launch.end[event] * scale), y: lane.row.y - this.view.top + lane.y, height: lane.height };
  }

  arrow(launch, event, bold) {
    const cause = launch.cause[event];
    if (cause < 0) return;
    const from = this.boxOf(launch, cause), to = this.boxOf(launch, event);
    if (!from || !to) return;
    const { context } = this, x0 = from.x1, y0 = from.y + from.height / 2, x1 = to.x1, y1 = to.y + to.height / 2;
    const bend = Math.max(14, Math.min(60, Math.abs(y1 - y0) / 3));
    context.strokeStyle = context.fillStyle = this.own[bold ? "chosen" : "arrow"];
    context.globalAlpha = bold ? 1 : this.faint;
    context.lineWidth = bold ? 2 : 1;
    context.beginPath();
    context.moveTo(x0, y0);
    context.bezierCurveTo(x0 + bend, y0, x1 + bend, y1, x1 + 1, y1);
    context.stroke();
    context.beginPath();
    context.moveTo(x1, y1);
    context.lineTo(x1 + 7, y1 - 3.5);
    context.lineTo(x1 + 7, y1 + 3.5);
    context.fill();
    context.globalAlpha = context.lineWidth = 1;
  }

  // An arrow to each wait in view from what ended it, as long as they can be told apart.
  arrows() {
    const { view } = this, found = [];
    for (const row of view.rows) {
      const y = row.y - view.top;
      if (row.kind !== "role" || y + row.height < AXIS || y > this.height) continue;
      for (const lane of row.lanes) {
        if (lane.style === THIN) continue;
        const scale = view.scale(lane.launch), to = view.to / scale;
        for (let at = firstAbove(lane.reach, view.from / scale); at < lane.ends.length && lane.starts[at] < to; at++) {
          const event = lane.ids[at];
          if (lane.launch.kind[event] === WAIT && lane.launch.cause[event] >= 0 && lane.ends[at] <= to) found.push([lane.launch, event]);
          if (found.length > ARROWS) return;
        }
      }
    }
    this.faint = found.length > 40 ? 0.28 : 0.5;
    for (const [launch, event] of found) this.arrow(launch, event, false);
  }

  chosen() {
    const { view, context } = this;
    for (const [one, bold] of [[view.hovered, false], [view.chosen, true]]) {
      if (!one) continue;
      const box = this.boxOf(one.launch, one.event);
      if (one.launch.kind[one.event] === WAIT) this.arrow(one.launch, one.event, true);
      if (bold) for (const wait of view.ends) this.arrow(one.launch, wait, true);
      if (!box) continue;
      context.strokeStyle = bold ? this.own.chosen : this.own.ink;
      context.lineWidth = bold ? 2 : 1;
      context.strokeRect(box.x0 - 1, box.y - 1, Math.max(3, box.x1 - box.x0 + 1), box.height + 2);
      context.lineWidth = 1;
    }
  }
}

// A picture of lines that are stretched onto the canvas: one for a lane, as many as it is high for an area.
class Sheet {
  constructor() { this.canvas = new OffscreenCanvas(1, 1); }

  clear(width, height) {
    const { canvas } = this, most = Math.max(1, height);
    if (canvas.width !== width || canvas.height < most) {
      canvas.width = Math.max(1, width);
      canvas.height = most;
      this.context = canvas.getContext("2d");
      this.image = this.context.createImageData(canvas.width, most);
      this.pixels = new Uint32Array(this.image.data.buffer);
    }
    this.pixels.fill(0);
    this.used = 0;
    this.places = [];
  }

  // So many lines to be shown from `y` on, `height` high: their pixels, ABGR, 0 where nothing is.
  lines(count, y, height) {
    const from = this.used, { width } = this.canvas;
    this.used += count;
    this.places.push([from, count, y, height]);
    return this.pixels.subarray(from * width, this.used * width);
  }

  paint(context) {
    const { width } = this.canvas;
    if (!this.used) return;
    this.context.putImageData(this.image, 0, 0, 0, 0, width, this.used);
    context.imageSmoothingEnabled = false;
    for (const [from, count, y, height] of this.places) context.drawImage(this.canvas, 0, from, width, count, 0, y, width, height);
  }
}

// `colour` laid over `paper` with an opacity, both #rrggbb: as a pixel, ABGR.
function mixed(colour, paper, opacity) {
  const part = (text, at) => parseInt(text.slice(at, at + 2), 16);
  const one = (at) => Math.round(part(paper, at) + (part(colour, at) - part(paper, at)) * opacity);
  return ((255 << 24) | (one(5) << 16) | (one(3) << 8) | one(1)) >>> 0;
}

// Round times about 110 pixels apart.
function ticksOf(from, to, width) {
  const rough = ((to - from) * 110) / Math.max(width, 1), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough), ticks = [];
  for (let at = Math.ceil(from / step); at * step <= to; at++) ticks.push(at * step);
  return { ticks, step };
}

// A time in words, to the precision of `step`. `unit`: "ns" or "clocks".
function labelOf(time, unit, step) {
  const places = (size) => Math.max(0, Math.min(6, -Math.floor(Math.log10(size) + 1e-9)));
  if (unit === "clocks") return `${time.toLocaleString("en", { maximumFractionDigits: places(step) })} clk`;
  return step >= 50 || time >= 1e5 ? `${(time / 1000).toFixed(places(step / 1000))} µs` : `${time.toFixed(places(step))} ns`;
}
