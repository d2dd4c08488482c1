// Rows that are areas: stages filled, bytes in shared memory, the tensor pipe.
//
// A series is a step function: `times` where it changes, `values` from there on, `sums` its integral up to there, so
// that the mean over a pixel costs two searches however many steps lie in it.

class Series {
  // made: gives [time, by how much, time, by how much, ...] in any order; asked when the series is looked at.
  constructor(made) { this.made = made; }

  get times() { return this.built.times; }
  get values() { return this.built.values; }
  get sums() { return this.built.sums; }
  get most() { return this.built.most; }

  get built() {
    if (this.columns) return this.columns;
    const changes = inOrder(this.made()), times = new Float64Array(changes.length / 2), values = new Float64Array(times.length);
    let value = 0, last = -1, most = 0;
    for (let at = 0; at < changes.length; at += 2) {
      if (last < 0 || changes[at] - times[last] >= 1e-9) times[++last] = changes[at];
      values[last] = value += changes[at + 1];
    }
    const count = last + 1, sums = new Float64Array(count);
    for (let at = 0; at < count; at++) {
      if (at) sums[at] = sums[at - 1] + values[at - 1] * (times[at] - times[at - 1]);
      if (values[at] > most) most = values[at];
    }
    return (this.columns = { times: times.subarray(0, count), values: values.subarray(0, count), sums, most });
  }

  at(time) {
    const after = firstAbove(this.times, time);
    return after ? this.values[after - 1] : 0;
  }

  integral(time) { return this.until(time, firstAbove(this.times, time)); }

  // The integral up to a time, `after` being the first index above it.
  until(time, after) {
    return after ? this.sums[after - 1] + this.values[after - 1] * (time - this.times[after - 1]) : 0;
  }

  mean(from, to) {
    return to > from ? (this.integral(to) - this.integral(from)) / (to - from) : this.at(from);
  }
}

// Changes by time. Beginnings and ends come in pairs, and each of the two are nearly in order: they are merged.
function inOrder(changes) {
  const pairs = changes.length / 4, begins = new Uint32Array(Math.ceil(pairs)), ends = new Uint32Array(Math.floor(pairs));
  for (let at = 0; at < begins.length; at++) begins[at] = 4 * at;
  for (let at = 0; at < ends.length; at++) ends[at] = 4 * at + 2;
  const sorted = (order) => {
    for (let at = 1; at < order.length; at++) if (changes[order[at]] < changes[order[at - 1]]) return order.sort((a, b) => changes[a] - changes[b]);
    return order;
  };
  sorted(begins);
  sorted(ends);
  const found = new Float64Array(changes.length);
  for (let at = 0, one = 0, other = 0; at < found.length; at += 2) {
    const from = other >= ends.length || (one < begins.length && changes[begins[one]] <= changes[ends[other]]) ? begins[one++] : ends[other++];
    found[at] = changes[from];
    found[at + 1] = changes[from + 1];
  }
  return found;
}

// Stages of a slot: [first copy's start, bytes complete, released, bytes], each buffer that copies fill once.
//
// A barrier that copies complete is the signal of a buffer. It is released when an arrival-only barrier of the same
// stage completes next; without such one, when the next copy into it is issued, or its CTA is over.
function fillsOf(launch, group) {
  const keyOf = (event) => (launch.cta[event] * 4096 + launch.barrier[event]) * 512 + launch.stage[event] + 1;
  const copies = new Map(), phases = new Map(), released = new Map();
  for (const event of group.copies) {
    if (launch.phase[event] < 0) continue;
    const key = keyOf(event), found = copies.get(key) ?? copies.set(key, new Map()).get(key);
    const one = found.get(launch.phase[event]);
    if (one) { one.bytes += launch.bytes[event]; one.start = Math.min(one.start, launch.start[event]); }
    else found.set(launch.phase[event], { start: launch.start[event], bytes: launch.bytes[event] });
  }
  const filled = new Set([...copies.keys()]);
  for (const events of group.phases.values()) for (const event of events) {
    const key = keyOf(event), cause = launch.cause[event];
    if (cause >= 0 && launch.kind[cause] === COPY) filled.add(key);
    if (!phases.has(key)) phases.set(key, []);
    phases.get(key).push(event);
  }
  for (const [key, events] of phases) {
    if (filled.has(key)) continue;
    const stage = launch.cta[events[0]] * 512 + launch.stage[events[0]] + 1;
    released.set(stage, [...(released.get(stage) ?? []), ...events.map((event) => launch.end[event])]);
  }
  for (const times of released.values()) times.sort((a, b) => a - b);
  const fills = [], buffers = new Set();
  for (const key of filled) {
    const events = phases.get(key) ?? [], found = copies.get(key) ?? new Map();
    events.forEach((event, at) => {
      buffers.add(key % (4096 * 512));
      const full = launch.end[event], copy = found.get(launch.phase[event]);
      if (copy) copy.complete = true;
      const times = released.get(launch.cta[event] * 512 + launch.stage[event] + 1) ?? [];
      const after = firstAbove(times, full), next = found.get(launch.phase[event] + 1);
      const over = launch.slots.get(launch.cta[event]).end;
      const until = after < times.length ? times[after] : times.length ? over : next ? next.start : over;
      fills.push({ start: copy ? copy.start : full, full, until: Math.max(full, until), bytes: copy ? copy.bytes : 0 });
    });
  }
  for (const [key, found] of copies) for (const one of found.values()) if (!one.complete) {  // a phase that never ends
    const over = Math.max(...[...launch.slots.values()].map((slot) => slot.end));
    fills.push({ start: one.start, full: over, until: over, bytes: one.bytes });
    buffers.add(key % (4096 * 512));
  }
  return { fills, buffers: buffers.size };
}

function seriesRows(launch, group, where) {
  const { fills, buffers } = fillsOf(launch, group);
  if (!fills.length) return [];
  group.fills = fills;
  const filled = new Series(() => fills.flatMap((one) => [one.full, 1, one.until, -1]));
  const coming = new Series(() => fills.flatMap((one) => [one.start, 1, one.full, -1]));
  return [{
    kind: "series", launch, title: "Stages filled", where, lanes: [], most: buffers, unit: `of ${buffers}`, digits: 0,
    series: [{ steps: filled, name: "filled" }, { steps: coming, name: "arriving" }],
  }];
}

// Rows of an SM: what of its shared and tensor memory is taken, and how busy its tensor pipe is.
function chipRows(launch, sm, groups) {
  const several = new Set([...groups.values()].map((group) => group.sm)).size > 1, where = several ? ` (SM ${sm})` : "";
  const rows = [], taken = [], KIB = 1024, mine = [...groups.values()].filter((group) => group.sm === sm);
  for (const [, one] of launch.slots) {
    if (one.sm === sm) taken.push(one.start, launch.head.sharedBytes / KIB, one.end, -launch.head.sharedBytes / KIB);
  }
  const held = () => mine.flatMap(({ fills = [] }) => fills.flatMap((one) => [one.full, one.bytes / KIB, one.until, -one.bytes / KIB]));
  const coming = () => mine.flatMap(({ fills = [], copies }) => [
    ...fills.flatMap((one) => [one.start, one.bytes / KIB, one.full, -one.bytes / KIB]),
    ...copies.filter((event) => launch.phase[event] < 0)
      .flatMap((event) => [launch.start[event], launch.bytes[event] / KIB, launch.end[event], -launch.bytes[event] / KIB]),
  ]);
  if (launch.head.sharedBytes) {
    const outline = new Series(() => taken);
    rows.push({
      kind: "series", launch, title: "Shared memory", where, lanes: [], most: outline.most, unit: "KiB", digits: 0,
      outline: { steps: outline, name: "allocated" },
      series: [{ steps: new Series(held), name: "filled" }, { steps: new Series(coming), name: "arriving" }],
    });
  }
  const columns = mine.flatMap((group) => [...group.arrivals.values()].flatMap((events) => events.filter((event) => launch.kind[event] === COLUMNS)
    .flatMap((event) => [launch.start[event], launch.bytes[event] / 512])));
  if (columns.length) {
    rows.push({
      kind: "series", launch, title: "Tensor memory", where, lanes: [], most: 512, unit: "columns", digits: 0,
      series: [{ steps: new Series(() => columns), name: "allocated" }],
    });
  }
  const busy = tensorOf(launch, sm);
  if (busy.length) {
    const steps = new Series(() => busy);
    launch.tensor ??= steps;
    rows.push({
      kind: "series", launch, title: "Tensor pipe busy", where, lanes: [], get most() { return Math.max(100, steps.most); }, unit: "%", digits: 0,
      series: [{ steps, name: "busy" }],
    });
  }
  return rows;
}

// Percent of an SM's tensor pipe: a warpgroup's product takes all of it, a warp's that of its quarter.
function tensorOf(launch, sm) {
  const { busyFor, busyFrom, start, kind, cta, slots, head } = launch, changes = [];
  for (let event = 0; event < launch.count; event++) {
    if (!busyFor[event] || slots.get(cta[event]).sm !== sm) continue;
    const from = start[event] + busyFrom[event] / head.ticks, share = kind[event] === MATRIX ? 100 : 25;
    changes.push(from, share, from + busyFor[event] / head.ticks, -share);
  }
  return changes;
}
