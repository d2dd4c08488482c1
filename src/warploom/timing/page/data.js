// Unpacks launches: bytes become columns (typed arrays), times become clocks, references become event numbers.

const KINDS = ["run", "wait", "arrive", "copy", "store", "matrix", "barrier", "columns"];
const [RUN, WAIT, ARRIVE, COPY, STORE, MATRIX, BARRIER, COLUMNS] = KINDS.keys();
const ARRAYS = {
  uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array, int16: Int16Array, uint32: Uint32Array, int32: Int32Array,
  float64: Float64Array,
};

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const letters = atob(text), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}

async function inflated(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// One launch: `start`, `end` in clocks, columns by name, and the head of the packed text (kernel, code, pins, ...).
async function launchOf(text, number) {
  const buffer = await inflated(fromBase64(text.trim()));
  const length = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const base = 4 + length, count = head.count, raw = {};
  for (const column of head.columns) raw[column.name] = new ARRAYS[column.type](buffer, base + column.at, count);
  const start = new Float64Array(count), end = new Float64Array(count), ticks = head.ticks;
  const cause = new Int32Array(count), issuer = new Int32Array(count);
  for (let at = 0, now = 0; at < count; at++) {
    now += raw.start[at];
    start[at] = now / ticks;
    end[at] = (now + raw.length[at]) / ticks;
    cause[at] = raw.cause[at] ? at + raw.cause[at] : -1;
    issuer[at] = raw.issuer[at] ? at + raw.issuer[at] : -1;
  }
  return { ...raw, head, number, count, start, end, cause, issuer, clocks: head.end };
}

// Clocks on the tensor pipe, [from, to], of a matrix event or a run with products; null for others.
function busyOf(launch, event) {
  if (!launch.busyFor[event]) return null;
  const from = launch.start[event] + launch.busyFrom[event] / launch.head.ticks;
  return [from, from + launch.busyFor[event] / launch.head.ticks];
}

function placeOf(launch, event) {
  const [opcode, file, line, ptx] = launch.head.places[launch.place[event]];
  return { opcode, file, line, ptx };
}

// The kernel and, if that alone does not tell launches apart, its arguments.
function headingOf(launch) { return launch.head.kernel + (launch.head.arguments ? ` of ${launch.head.arguments}` : ""); }

function isNamed(launch, event) { return launch.warp[event] >= 0 && !!launch.head.roles[launch.role[event]]; }

function roleOf(launch, event) {
  if (launch.warp[event] < 0) return "";
  return launch.head.roles[launch.role[event]] || `warps ${4 * (launch.warp[event] >> 2)}-${4 * (launch.warp[event] >> 2) + 3}`;
}

// "full[2]" of an event at a barrier, "" for others.
function barrierOf(launch, event) {
  const name = launch.head.barriers[launch.barrier[event]];
  return name && launch.stage[event] >= 0 ? `${name}[${launch.stage[event]}]` : name;
}

const SHORT = [
  [/^cp\.async\.bulk\.tensor\.(\d)d\.shared.*multicast.*/, "TMA load $1D, multicast"],
  [/^cp\.async\.bulk\.tensor\.(\d)d\.shared.*/, "TMA load $1D"],
  [/^cp\.async\.bulk\.tensor\.(\d)d\.global.*/, "TMA store $1D"],
  [/^cp\.reduce\.async\.bulk.*/, "bulk reduction"],
  [/^cp\.async\.bulk\.shared.*/, "bulk load"],
  [/^cp\.async\.bulk\.global.*/, "bulk store"],
  [/^cp\.async.*/, "cp.async"],
  [/^(wgmma)\.mma_async\S*\.(m\d+n\d+k\d+)\.(\S+)$/, "$1 $2"],
  [/^(tcgen05\.\w+)\S*/, "$1"],
  [/^mbarrier\.arrive\S*/, "arrive"],
];

function shortOf(text) {
  for (const [pattern, words] of SHORT) if (pattern.test(text)) return text.replace(pattern, words);
  return text;
}

function waitWords(what) { return what.replace("warpgroup_mma", "wgmma"); }

// What an event is called, in a few words.
function nameOf(launch, event) {
  const what = launch.head.words[launch.what[event]], at = barrierOf(launch, event);
  switch (launch.kind[event]) {
    case RUN: return launch.instructions[event] === 1 ? "1 instruction" : `${launch.instructions[event]} instructions`;
    case WAIT: return at ? what.replace(launch.head.barriers[launch.barrier[event]], at) : waitWords(what);
    case BARRIER: return `${at}, phase ${launch.phase[event]}`;
    case ARRIVE: return `arrive at ${at || "a barrier"}`;
    default: return shortOf(what) + (at ? ` for ${at}` : "");
  }
}

// Waits that an event ended, by event: the numbers of `next` after `first[event]`.
function endedBy(launch) {
  if (launch.ended) return launch.ended;
  const first = new Int32Array(launch.count).fill(-1), next = new Int32Array(launch.count).fill(-1);
  for (let at = launch.count - 1; at >= 0; at--) {
    const cause = launch.cause[at];
    if (cause >= 0) { next[at] = first[cause]; first[cause] = at; }
  }
  return (launch.ended = { first, next });
}

// The first index of a sorted array (of its first `length` entries, from `low`) whose value is above `value`.
function firstAbove(values, value, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

// The same from `low` on, for values that are probably near: steps that double, then halves.
function nextAbove(values, value, low) {
  let step = 1, high = low;
  while (high < values.length && values[high] <= value) { low = high + 1; high += step; step *= 2; }
  return firstAbove(values, value, low, Math.min(high, values.length));
}
