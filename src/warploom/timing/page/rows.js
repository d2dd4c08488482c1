// Rows of the page: which events lie on which lane of which row.
//
// A lane is events that do not overlap, in order. A row has a title and one or more lanes, or a series (an area).
// CTAs that follow each other on an SM share a slot, so that a row shows one after the other.

const LANES = 12;  // of overlapping events that are drawn below each other; more share the last one

const PLAIN = 0, THIN = 1, PHASES = 2, FLIGHT = 3;  // how a lane is painted

const BLOCK = 32;  // events whose sums are kept; single ones are added up

class Lane {
  // spans: where a bar stands for several events, {start, end, events} in place of each event.
  constructor(launch, events, height, style, spans = null) {
    Object.assign(this, { launch, events, height, style, spans, y: 0, mostly: 0 });
  }

  get ids() { return this.built.ids; }
  get starts() { return this.built.starts; }
  get ends() { return this.built.ends; }
  get reach() { return this.built.reach; }  // the latest end up to an index: ends in order, for searches

  // Columns of the lane, made when it is looked at for the first time.
  get built() {
    if (this.columns) return this.columns;
    const { launch, spans } = this, ids = new Int32Array(this.events), count = ids.length, classes = classesOf(launch);
    const starts = new Float64Array(count), ends = new Float64Array(count), reach = new Float64Array(count), own = new Uint8Array(count);
    const sums = CLASSES.map(() => null), blocks = Math.floor(count / BLOCK) + 1;  // clocks of each class before a block
    for (let at = 0, latest = 0; at < count; at++) {
      const event = ids[at], start = (starts[at] = spans ? spans[at].start : launch.start[event]);
      const end = (ends[at] = spans ? spans[at].end : launch.end[event]), one = (own[at] = classes[event]);
      reach[at] = latest = end > latest ? end : latest;
      const block = Math.floor(at / BLOCK) + 1, kept = (sums[one] ??= new Float64Array(blocks));
      if (block < blocks) kept[block] += end - start;
    }
    const shown = [...sums.keys()].filter((one) => sums[one]);
    for (const one of shown) for (let block = 1; block < blocks; block++) sums[one][block] += sums[one][block - 1];
    return (this.columns = { ids, starts, ends, reach, own, sums, shown, found: new Float64Array(CLASSES.length) });
  }

  // Clocks of the events in [from, to); `mostly` is then the class that has most of them.
  most(from, to) {
    const { starts, ends, own, sums, shown, found } = this.built;
    if (to - from === 1) { this.mostly = own[from]; return ends[from] - starts[from]; }
    const first = Math.ceil(from / BLOCK), last = Math.floor(to / BLOCK);
    for (const one of shown) found[one] = last > first ? sums[one][last] - sums[one][first] : 0;
    const before = last > first ? first * BLOCK : to;
    for (let at = from; at < before; at++) found[own[at]] += ends[at] - starts[at];
    if (last > first) for (let at = last * BLOCK; at < to; at++) found[own[at]] += ends[at] - starts[at];
    let all = 0, best = -1;
    for (const one of shown) { all += found[one]; if (found[one] > best) { best = found[one]; this.mostly = one; } }
    return all;
  }
}

// Classes of events, which have a colour each.
const CLASSES = ["run", "product", "wait-phase", "wait-group", "wait-meeting", "wait-load", "wait-ever", "copy", "store",
  "matrix", "phase", "phase-odd", "arrive"];
const CLASS = Object.fromEntries(CLASSES.map((name, number) => [name, number]));

function classOf(launch, event) {
  switch (launch.kind[event]) {
    case RUN: return launch.flops[event] ? CLASS.product : CLASS.run;
    case COPY: return CLASS.copy;
    case STORE: return CLASS.store;
    case MATRIX: return CLASS.matrix;
    case BARRIER: return launch.phase[event] % 2 ? CLASS["phase-odd"] : CLASS.phase;
    case ARRIVE: case COLUMNS: return CLASS.arrive;
  }
  if (!launch.waitClass) launch.waitClass = launch.head.words.map(waitClassOf);
  const named = launch.waitClass[launch.what[event]];
  if (named >= 0) return named;
  if (launch.phase[event] >= 0) return CLASS["wait-phase"];
  return launch.head.barriers[launch.barrier[event]] ? CLASS["wait-meeting"] : CLASS["wait-group"];
}

// The class of each event.
function classesOf(launch) {
  if (launch.classes) return launch.classes;
  const found = new Uint8Array(launch.count);
  for (let event = 0; event < launch.count; event++) found[event] = classOf(launch, event);
  return (launch.classes = found);
}

function waitClassOf(words) {
  if (words.endsWith("for ever")) return CLASS["wait-ever"];
  if (words === "wait for load") return CLASS["wait-load"];
  return -1;
}

// Slots: CTA -> number of its slot on its SM; CTAs that do not overlap in time share one.
function slotsOf(launch) {
  const { cta, start, end } = launch, ctas = launch.count ? cta.reduce((most, one) => (one > most ? one : most), 0) + 1 : 0;
  const first = new Float64Array(ctas).fill(-1), last = new Float64Array(ctas);
  for (let at = 0; at < launch.count; at++) {
    const one = cta[at];
    if (first[one] < 0) first[one] = start[at];
    if (end[at] > last[one]) last[one] = end[at];
  }
  const free = new Map(), slots = new Map();
  for (const cta of [...first.keys()].filter((one) => first[one] >= 0).sort((a, b) => first[a] - first[b] || a - b)) {
    const sm = launch.head.sm[cta] ?? 0, ends = free.get(sm) ?? [];
    let slot = ends.findIndex((end) => end <= first[cta]);
    if (slot < 0) slot = ends.length;
    ends[slot] = last[cta];
    free.set(sm, ends);
    slots.set(cta, { sm, slot, start: first[cta], end: last[cta] });
  }
  return slots;
}

// Spans that overlap, spread over lanes: the first lane that is free. A span: {start, end, events}.
function spread(launch, spans, height) {
  const lanes = [], ends = [];
  for (const span of spans) {
    let lane = ends.findIndex((end) => end <= span.start + 1e-9);
    if (lane < 0) lane = lanes.length < LANES ? lanes.length : LANES - 1;
    (lanes[lane] ??= []).push(span);
    ends[lane] = Math.max(ends[lane] ?? 0, span.end);
  }
  return lanes.map((found) => new Lane(launch, found.map((span) => span.events[0]), height, FLIGHT, found));
}

function alone(launch, events) {
  return events.map((event) => ({ start: launch.start[event], end: launch.end[event], events: [event] }));
}

// Products that were committed together are one span.
function grouped(launch, events) {
  const spans = [], known = new Map();
  for (const event of events) {
    const group = launch.group[event], cta = launch.cta[event], found = group ? known.get(group * 4096 + cta) : undefined;
    if (found && launch.start[event] < found.end) {
      found.events.push(event);
      found.end = Math.max(found.end, launch.end[event]);
    } else {
      const span = { start: launch.start[event], end: launch.end[event], events: [event] };
      spans.push(span);
      if (group) known.set(group * 4096 + cta, span);
    }
  }
  return spans;
}

// All rows of a launch, in the order in which they are shown.
function rowsOf(launch) {
  const slots = (launch.slots = slotsOf(launch)), groups = new Map();
  const several = new Set([...slots.values()].map((one) => `${one.sm} ${one.slot}`)).size > 1;
  const push = (map, key, value) => { const found = map.get(key); if (found) found.push(value); else map.set(key, [value]); };
  const slotOf = new Map([...slots].map(([cta, one]) => {
    const key = one.sm * 4096 + one.slot;
    if (!groups.has(key)) {
      groups.set(key, { sm: one.sm, slot: one.slot, warps: new Map(), arrivals: new Map(), phases: new Map(), copies: [], moves: [], stores: [],
        matrix: new Map() });
    }
    return [cta, groups.get(key)];
  }));
  for (let at = 0; at < launch.count; at++) {
    const group = slotOf.get(launch.cta[at]), warp = launch.warp[at];
    switch (launch.kind[at]) {
      case RUN: case WAIT: push(group.warps, warp, at); break;
      case ARRIVE: case COLUMNS: push(group.arrivals, warp, at); break;
      case BARRIER: push(group.phases, launch.barrier[at] * 4096 + launch.stage[at] + 1, at); break;
      case COPY: (launch.head.words[launch.what[at]].startsWith("tcgen05.") ? group.moves : group.copies).push(at); break;
      case STORE: group.stores.push(at); break;
      case MATRIX: push(group.matrix, launch.warp[at] >> 2, at); break;
    }
  }
  const rows = [{ kind: "launch", launch, title: headingOf(launch), lanes: [] }];
  if (launch.head.pins.length) rows.push({ kind: "pins", launch, title: "Findings", lanes: [] });
  for (const key of [...groups.keys()].sort((a, b) => a - b)) {
    const group = groups.get(key), where = several ? ` (SM ${group.sm})` : "";
    if (several) rows.push({ kind: "slot", launch, title: titleOf(group, slots), lanes: [], group });
    rows.push(...warpRows(launch, group, key, where), ...barrierRows(launch, group, where));
    const flights = [["TMA and copies in flight", group.copies], ["Tensor memory in flight", group.moves], ["Stores in flight", group.stores]];
    for (const [title, events] of flights) {
      if (events.length) rows.push({ kind: "flight", launch, title, where, lanes: spread(launch, alone(launch, events), 10) });
    }
    for (const [, events] of [...group.matrix].sort((a, b) => a[0] - b[0])) {
      const title = group.matrix.size > 1 ? `Products of ${roleOf(launch, events[0])}` : "Products in flight";
      rows.push({ kind: "flight", launch, title, where, lanes: spread(launch, grouped(launch, events), 12) });
    }
    rows.push(...seriesRows(launch, group, where));
  }
  for (const sm of new Set([...groups.values()].map((group) => group.sm))) rows.push(...chipRows(launch, sm, groups));
  for (const row of rows) row.lanes.forEach((lane) => (lane.row = row));
  return rows.filter((row) => row.lanes.length || row.series || ["launch", "pins", "slot"].includes(row.kind));
}

function titleOf(group, slots) {
  const ctas = [...slots].filter(([, one]) => one.sm === group.sm && one.slot === group.slot).map(([cta]) => cta);
  return `SM ${group.sm}: CTA ${ctas.length > 3 ? `${ctas[0]}, ${ctas[1]} … ${ctas[ctas.length - 1]}` : ctas.join(", ")}`;
}

// A row for each role: the warp that does most first, the others as ribbons below it; or each warp in full.
function warpRows(launch, group, key, where) {
  const roles = new Map();
  for (const warp of [...group.warps.keys()].sort((a, b) => a - b)) {
    const role = roleOf(launch, group.warps.get(warp)[0]);
    if (!roles.has(role)) roles.set(role, []);
    roles.get(role).push(warp);
  }
  return [...roles].map(([role, warps]) => {
    const weight = (warp) => group.warps.get(warp).length + 4 * (group.arrivals.get(warp)?.length ?? 0);
    const leader = warps.reduce((best, warp) => (weight(warp) > weight(best) ? warp : best));
    const order = [leader, ...warps.filter((warp) => warp !== leader)];
    const named = isNamed(launch, group.warps.get(leader)[0]), ends = [warps[0], warps[warps.length - 1]];
    const title = named ? role : warps.length > 1 ? `warps ${ends.join("-")}` : `warp ${ends[0]}`;
    const row = { kind: "role", launch, title, where, warps: order, key: `${key}:${role}`, group };
    row.collapsed = () => order.map((warp, at) => warpLane(launch, group, warp, at ? 3 : 20, at ? THIN : PLAIN));
    row.expanded = () => [...order].sort((a, b) => a - b).map((warp) => warpLane(launch, group, warp, 16, PLAIN));
    row.lanes = row.collapsed();
    row.isOpen = false;
    return row;
  });
}

function warpLane(launch, group, warp, height, style) {
  const lane = new Lane(launch, group.warps.get(warp), height, style);
  lane.warp = warp;
  lane.arrivals = new Int32Array(group.arrivals.get(warp) ?? []);
  return lane;
}

// A row for each barrier that has phases, a lane for each of its stages.
function barrierRows(launch, group, where) {
  const rows = new Map();
  for (const key of [...group.phases.keys()].sort((a, b) => a - b)) {
    const name = launch.head.barriers[Math.floor(key / 4096)];
    if (!rows.has(name)) rows.set(name, { kind: "barrier", launch, title: `${name}`, where, lanes: [] });
    rows.get(name).lanes.push(new Lane(launch, group.phases.get(key), 9, PHASES));
  }
  return [...rows.values()];
}
