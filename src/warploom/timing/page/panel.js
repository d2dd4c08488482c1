// The words beside the picture: the chosen event and what it hangs together with, the launch as a whole, its findings,
// and who waits for whom where it hangs. All of it is text that a screen reader reads.

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

function facts(pairs) {
  const list = element("dl");
  for (const [name, value] of pairs) if (value !== "" && value !== null) list.append(element("dt", {}, name), element("dd", {}, value));
  return list;
}

const count = (number) => number.toLocaleString("en");

function timeWords(launch, clocks) {
  return `${count(Math.round(clocks))} clocks, ${labelOf((clocks * 1000) / launch.head.mhz, "ns", 1)}`;
}

function whoOf(launch, event) {
  const warp = launch.warp[event], role = isNamed(launch, event) ? `${roleOf(launch, event)}, ` : "", many = launch.slots.size > 1 ? `, CTA ${launch.cta[event]}` : "";
  return warp < 0 ? `CTA ${launch.cta[event]}` : `${role}warp ${warp}${many}`;
}

class Panel {
  // go(launch, event, close): show an event.
  constructor(home, go, pinned) {
    this.home = home;
    this.go = go;
    this.pinned = pinned;
  }

  link(launch, event) {
    const go = () => this.go(launch, event, false);
    return element("button", { class: "link", onclick: go }, nameOf(launch, event), element("small", {}, ` ${whoOf(launch, event)}`));
  }

  event(launch, event, ends) {
    const place = placeOf(launch, event), kind = KINDS[launch.kind[event]], own = CLASSES[classOf(launch, event)];
    const cause = launch.cause[event], issuer = launch.issuer[event], flops = launch.flops[event], bytes = launch.bytes[event];
    const clocks = launch.end[event] - launch.start[event], busy = busyOf(launch, event);
    const forEver = own === "wait-ever";
    const parts = [
      element("h2", {}, element("span", { class: "swatch", style: `background:var(--${own})` }), nameOf(launch, event)),
      facts([
        ["who", whoOf(launch, event)],
        ["when", timeWords(launch, launch.start[event])],
        ["lasts", forEver ? "for ever" : clocks ? timeWords(launch, clocks) : ""],
        ["phase", launch.phase[event] >= 0 ? `${launch.phase[event]} of ${barrierOf(launch, event)}` : ""],
        ["bytes", bytes ? count(bytes) : ""],
        ["work", flops ? `${count(flops)} FLOP` : ""],
        ["tensor pipe", busy ? `${count(Math.round(busy[1] - busy[0]))} clocks of it` : ""],
        ["opcode", kind === "run" ? "" : place.opcode],
        ["line", place.file ? `${place.file}:${place.line}` : place.ptx ? `PTX line ${place.ptx}` : ""],
      ]),
    ];
    if (kind === "wait" && !forEver) {
      parts.push(element("h3", {}, "Ended by"), cause >= 0 ? this.link(launch, cause) : element("p", {}, "nothing that was recorded: it takes this long by itself"));
      if (cause >= 0 && launch.issuer[cause] >= 0) parts.push(element("p", { class: "soft" }, "which was issued in "), this.link(launch, launch.issuer[cause]));
    } else if (kind === "barrier" && cause >= 0) parts.push(element("h3", {}, "Completed by"), this.link(launch, cause));
    if (issuer >= 0) parts.push(element("h3", {}, "Issued in"), this.link(launch, issuer));
    if (ends.length) {
      parts.push(element("h3", {}, ends.length === 1 ? "Ends this wait" : `Ends these ${ends.length} waits`));
      parts.push(element("ul", {}, ...ends.slice(0, 8).map((one) => element("li", {}, this.link(launch, one)))));
    }
    if (forEver) parts.push(...this.circle(launch));
    this.home.replaceChildren(...parts);
  }

  pin(launch, number) {
    const pin = launch.head.pins[number];
    this.home.replaceChildren(
      element("h2", {}, element("span", { class: `badge ${pin.severity}` }, pin.severity), ` ${pin.title}`),
      facts([["rule", pin.rule], ["when", timeWords(launch, pin.clocks)], ["line", pin.file ? `${pin.file}:${pin.line}` : ""]]),
      element("p", { class: "said" }, pin.text),
    );
  }

  // The whole launch: what it reaches, where each role waits, what was found.
  launch(launch, launches) {
    const order = [launch, ...launches.filter((one) => one !== launch)];
    this.home.replaceChildren(...order.flatMap((one) => [this.headline(one), ...this.summary(one)]));
  }

  summary(launch) {
    const { head } = launch, { prediction } = head, parts = [];
    if (head.waiters.length) parts.push(...this.circle(launch));
    if (prediction) {
      const rows = Object.entries(prediction.waits).flatMap(([role, found]) => Object.entries(found).filter(([, share]) => share >= 0.005)
        .sort((a, b) => b[1] - a[1]).map(([what, share], at) => [at ? "" : role, waitWords(what), share]));
      parts.push(element("h3", {}, "Where warps wait"), this.table(["role", "for", "of its time"], rows));
      const roofs = Object.entries(prediction.roofs).sort((a, b) => b[1] - a[1]).map(([name, share]) => [name, "", share]);
      parts.push(element("h3", {}, "How busy the units are"), this.table(["unit", "", "of the time"], roofs));
    }
    if (head.pins.length) {
      parts.push(element("h3", {}, "Findings of the sanitizer"), element("ul", {}, ...head.pins.map((pin, number) => element("li", {},
        element("button", { class: "link", onclick: () => this.pinned(launch, number) }, element("span", { class: `badge ${pin.severity}` }, pin.severity), ` ${pin.title}`)))));
    }
    if (!head.complete) parts.push(element("p", { class: "said" }, `Only the first ${count(head.count)} events are kept.`));
    return parts;
  }

  headline(launch) {
    const { head } = launch, { prediction } = head;
    const said = prediction ? prediction.said.replace(" us ", " µs ") : head.error;
    return element("section", {}, element("h2", {}, headingOf(launch)), element("p", { class: prediction ? "" : "said error" }, said),
      element("p", { class: "soft" }, `grid ${head.grid.join(" × ")}, block ${head.block.join(" × ")}, cluster ${head.cluster.join(" × ")}; ${count(head.count)} events of ${launch.slots.size} CTA${launch.slots.size > 1 ? "s" : ""}`),
      element("p", { class: "soft" }, head.model),
      head.guessed ? element("p", { class: "said" }, `${head.guessed} has guesses: sizes and values decide the time`) : "");
  }

  table(names, rows) {
    return element("table", {}, element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name)))),
      element("tbody", {}, ...rows.map(([first, second, share]) => element("tr", {}, element("th", { scope: "row" }, first), element("td", {}, second),
        element("td", { class: "share" }, element("span", { class: "meter", style: `--share:${Math.min(1, share)}`, "aria-hidden": "true" }), element("span", { class: "percent" }, `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`))))));
  }

  // Who waits for whom, as a picture and as a list.
  circle(launch) {
    const { waiters } = launch.head, linked = waiters.some((one) => one.needs.length);
    const parts = [element("h3", {}, linked ? "Who waits for whom" : "Who waits for ever")];
    if (linked && waiters.length <= 12) parts.push(circlePicture(waiters, (at) => this.go(launch, waiters[at].event, false)));
    parts.push(element("ul", { class: "waiters" }, ...waiters.map((one) => element("li", {},
      element("button", { class: "link", onclick: () => this.go(launch, one.event, false) }, `${one.who} of CTA ${one.cta}`),
      element("p", {}, `waits for ${one.what}${one.missing ? `: ${one.missing}` : ""}${one.file ? `, at ${one.file}:${one.line}` : ""}`),
      ...one.came.map((text) => element("p", { class: "soft" }, `so far: ${text}`)),
      one.needs.length ? element("p", { class: "soft" }, `${one.known ? "needs" : "nobody has arrived there yet; may need"} ${one.needs.map((at) => `${waiters[at].who} of CTA ${waiters[at].cta}`).join(", ")}`) : null))));
    return parts;
  }
}

const SVG = "http://www.w3.org/2000/svg";

function circlePicture(waiters, clicked) {
  const two = waiters.length === 2, wide = 380, high = two ? 96 : 250, middle = [wide / 2, high / 2], radius = [wide / 2 - 68, high / 2 - 34];
  const svg = document.createElementNS(SVG, "svg"), make = (name, attributes, text) => {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    svg.append(made);
    return made;
  };
  svg.setAttribute("viewBox", `0 0 ${wide} ${high}`);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", "who waits for whom; the list below says the same");
  svg.innerHTML = '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="var(--wait-ever)"/></marker></defs>';
  const at = waiters.map((_, number) => {
    const angle = (number / waiters.length) * 2 * Math.PI - (two ? Math.PI : Math.PI / 2);
    return [middle[0] + radius[0] * Math.cos(angle), middle[1] + radius[1] * Math.sin(angle)];
  });
  waiters.forEach((one, number) => one.needs.forEach((other) => {
    const [x0, y0] = at[number], [x1, y1] = at[other], long = Math.hypot(x1 - x0, y1 - y0) || 1;
    const cut = Math.min(62 / Math.abs(x1 - x0 || 1e-9), 19 / Math.abs(y1 - y0 || 1e-9)) + 8 / long;  // from the nodes' edges
    const bend = [(x0 + x1) / 2 + (y1 - y0) * 0.16, (y0 + y1) / 2 - (x1 - x0) * 0.16];
    make("path", { d: `M${x0 + (x1 - x0) * cut} ${y0 + (y1 - y0) * cut}Q${bend[0]} ${bend[1]} ${x1 - (x1 - x0) * cut} ${y1 - (y1 - y0) * cut}`,
      class: "edge", "stroke-dasharray": one.known ? "" : "4 4", "marker-end": "url(#tip)" });
  }));
  waiters.forEach((one, number) => {
    const [x, y] = at[number];
    const node = make("rect", { x: x - 62, y: y - 19, width: 124, height: 38, rx: 8, class: "node" });
    make("text", { x, y: y - 3, class: "who" }, `${one.who}, CTA ${one.cta}`.slice(0, 22));
    make("text", { x, y: y + 12, class: "what" }, one.what.slice(0, 24));
    node.addEventListener("click", () => clicked(number));
  });
  return svg;
}
