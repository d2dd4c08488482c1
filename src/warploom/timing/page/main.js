// Puts the page together and listens to the reader.

const $ = (name) => document.getElementById(name);

async function main() {
  const asked = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement.dataset;
  root.theme = asked.matches ? "dark" : "light";
  const texts = [...document.querySelectorAll("script.launch")];
  const launches = await Promise.all(texts.map((one, number) => launchOf(one.textContent, number)));
  texts.forEach((one) => one.remove());
  const view = new View(launches), painter = new Painter($("canvas"));
  const code = new CodeView({ python: $("python"), ptx: $("ptx"), sass: $("sass") }, codeClicked);
  const panel = new Panel($("details"), go, pinned), state = { frame: 0, painted: 0, frames: 0 };
  const height = () => $("scroll").clientHeight;

  // -- painting --------------------------------------------------------------------------------------------------

  function paint() {
    if (!state.frame) state.frame = requestAnimationFrame(painted);
  }

  function painted() {
    state.frame = 0;
    if (state.height !== height()) {
      state.height = height();
      canvas.style.height = `${state.height}px`;
      $("space").style.height = `${Math.max(view.total, state.height)}px`;
    }
    state.frames++;
    painter.paint(view);
    overview();
    clearTimeout(state.timer);
    state.timer = setTimeout(() => history.replaceState(null, "", view.address), 250);
  }

  function labels() {
    $("space").style.height = `${Math.max(view.total, height())}px`;
    $("labels").replaceChildren(...view.rows.map((row) => {
      const style = `top:${row.y}px;height:${row.height}px`;
      if (row.kind === "launch") {
        const { prediction, error } = row.launch.head;
        return element("h2", { class: "launch", style, onclick: () => whole(row.launch) }, row.title, element("span", { class: error ? "error" : "soft" },
          prediction ? prediction.said.replace(" us ", " µs ") : error));
      }
      if (row.kind === "slot") return element("div", { class: "slot", style }, row.title);
      if (row.kind === "role") {
        const open = !!row.isOpen, many = row.warps.length > 1;
        return element("div", { class: "label", style }, many
          ? element("button", { class: "fold", "aria-expanded": String(open), title: open ? "one row for the role" : "a row for each warp", onclick: () => fold(row) },
            element("span", { class: "arrow", "aria-hidden": "true" }, open ? "▾" : "▸"), row.title, element("small", {}, ` ${row.warps.length} warps`))
          : element("span", {}, row.title), ...(open ? row.lanes.map((lane) => element("small", { class: "warp", style: `top:${lane.y}px;height:${lane.height}px` }, `warp ${lane.warp}`)) : []));
      }
      return element("div", { class: `label ${row.kind}`, style, title: row.title + row.where }, element("span", {}, row.title), row.unit ? element("small", {}, ` ${["KiB", "columns"].includes(row.unit) ? `${Math.round(row.most)} ${row.unit}` : row.unit}`) : null);
    }));
  }

  function fold(row) {
    const key = `${row.launch.number}:${row.key}`;
    if (!view.open.delete(key)) view.open.add(key);
    view.lay();
    labels();
    paint();
  }

  // The whole run in a strip, painted once for each size and theme, with the part in view as a window.
  function overview() {
    const canvas = $("overview"), box = canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
    const key = `${box.width} ${box.height} ${ratio} ${root.theme} ${view.unit}`;
    if (state.strip?.key !== key) {
      canvas.width = Math.round(box.width * ratio);
      canvas.height = Math.round(box.height * ratio);
      const kept = new OffscreenCanvas(canvas.width, canvas.height), inside = kept.getContext("2d");
      inside.scale(ratio, ratio);
      wholeRun(inside, box);
      state.strip = { key, kept };
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(state.strip.kept, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const from = (view.from / view.end) * box.width, to = (view.to / view.end) * box.width;
    context.fillStyle = painter.own.paper;
    context.globalAlpha = 0.65;
    context.fillRect(0, 0, from, box.height);
    context.fillRect(to, 0, box.width, box.height);
    context.globalAlpha = 1;
    context.strokeStyle = painter.own.chosen;
    context.strokeRect(Math.max(0.5, from + 0.5), 0.5, Math.max(2, Math.min(box.width, to) - Math.max(0, from) - 1), box.height - 1);
  }

  function wholeRun(context, box) {
    context.fillStyle = painter.own.band;
    context.fillRect(0, 0, box.width, box.height);
    const each = box.height / launches.length;
    launches.forEach((launch, number) => {
      const steps = launch.tensor, per = view.end / box.width / view.scale(launch), base = each * (number + 1) - 1;
      context.fillStyle = painter.own.area;
      if (steps) for (let x = 0; x < box.width; x++) {
        const share = Math.min(1, steps.mean(x * per, (x + 1) * per) / 100) * (each - 2);
        if (share > 0.2) context.fillRect(x, base - share, 1, share);
      }
      context.fillStyle = painter.own.line;
      context.fillRect(0, base, (launch.clocks * view.scale(launch) * box.width) / view.end, 1);
    });
  }

  // -- choosing ----------------------------------------------------------------------------------------------------

  function go(launch, event, close) {
    choose(launch, event);
    view.show(launch, event, height(), close);
    $("scroll").scrollTop = view.top;
    paint();
  }

  function choose(launch, event) {
    view.choose(launch, event);
    if (view.chosen) {
      panel.event(launch, event, view.ends);
      code.mark(launch, placeOf(launch, event));
      say(`${nameOf(launch, event)}, ${whoOf(launch, event)}, ${timeWords(launch, launch.end[event] - launch.start[event])}${launch.cause[event] >= 0 ? `, ended by ${nameOf(launch, launch.cause[event])}` : ""}`);
    } else whole(view.launches[0]);
    paint();
  }

  function whole(launch) {
    const [stuck] = launch.head.waiters;
    view.choose(null, -1);
    panel.launch(launch, launches);
    code.mark(launch, stuck ? placeOf(launch, stuck.event) : null);
    paint();
  }

  function pinned(launch, number) {
    const pin = launch.head.pins[number];
    view.choose(null, -1);
    view.pin = { launch, number };
    panel.pin(launch, number);
    code.mark(launch, { file: pin.file, line: pin.line, ptx: launch.head.places.find((one) => one[1] === pin.file && one[2] === pin.line)?.[3] ?? 0 });
    const at = pin.clocks * view.scale(launch), wide = view.to - view.from;
    if (at < view.from || at > view.to) { view.from = at - wide / 2; view.to = at + wide / 2; view.keep(); }
    say(`${pin.severity}: ${pin.title}`);
    paint();
  }

  // A line of code was clicked: its events are those that are searched for.
  function codeClicked(launch, pane, line, file) {
    const { head } = launch, ptx = pane === "sass" ? head.code.sass[line - 1][1] : line;
    const wanted = head.places.map(([, of, at, ptxAt]) => (pane === "python" ? of === file && at === line : ptxAt === ptx && ptx > 0));
    const found = head.places.findIndex((_, at) => wanted[at]);
    code.mark(launch, pane === "python" ? { file, line, ptx: found >= 0 ? head.places[found][3] : 0 } : { file: head.places[found]?.[1], line: head.places[found]?.[2], ptx });
    const from = view.from / view.scale(launch);
    let first = -1, next = -1;
    for (let event = 0; event < launch.count && next < 0; event++) {
      if (!wanted[launch.place[event]]) continue;
      if (first < 0) first = event;
      if (launch.start[event] >= from && !(view.chosen && view.chosen.event >= event)) next = event;
    }
    if (next < 0) next = first;
    if (next >= 0) go(launch, next, false); else say("no event stands at this line");
  }

  function say(text) { $("said").textContent = text; }

  // -- searching ---------------------------------------------------------------------------------------------------

  function search(text) {
    view.found = text.trim() ? new Search(launches, text.trim()) : null;
    $("matches").textContent = view.found ? `${count(view.found.count)} found` : "";
    paint();
  }

  function step(way) {
    const next = view.found?.next(launches, view.chosen, way);
    if (next) go(next.launch, next.event, false);
  }

  // -- the reader --------------------------------------------------------------------------------------------------

  const canvas = $("canvas"), widthOf = () => canvas.getBoundingClientRect().width;
  const timeAt = (x) => view.from + ((view.to - view.from) * x) / widthOf();
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) { event.preventDefault(); view.zoom(Math.exp(event.deltaY * 0.003), timeAt(event.offsetX)); paint(); }
    else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); view.pan(((event.deltaX || event.deltaY) * (view.to - view.from)) / widthOf()); paint(); }
  }, { passive: false });
  let drag = null;
  canvas.addEventListener("pointerdown", (event) => { drag = { x: event.offsetX, y: event.offsetY, moved: false }; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      if (Math.abs(event.offsetX - drag.x) + Math.abs(event.offsetY - drag.y) > 3 || drag.moved) {
        view.pan(((drag.x - event.offsetX) * (view.to - view.from)) / widthOf());
        $("scroll").scrollTop += drag.y - event.offsetY;
        drag = { x: event.offsetX, y: event.offsetY, moved: true };
        paint();
      }
      return;
    }
    hover(event);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (drag && !drag.moved) clicked(event);
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => { view.hovered = null; $("tip-box").hidden = true; paint(); });
  canvas.addEventListener("dblclick", () => { if (view.chosen) go(view.chosen.launch, view.chosen.event, true); });

  function clicked(event) {
    canvas.focus();
    const under = view.under(event.offsetX, event.offsetY, widthOf());
    if (under?.pin >= 0) return pinned(under.launch, under.pin);
    if (under && under.event >= 0) choose(under.launch, under.event); else whole(under?.launch ?? launches[0]);
  }

  function hover(event) {
    const under = view.under(event.offsetX, event.offsetY, widthOf()), box = $("tip-box");
    const before = view.hovered;
    view.hovered = under && under.event >= 0 ? { launch: under.launch, event: under.event } : null;
    const words = wordsOf(under);
    box.hidden = !words.length;
    if (words.length) {
      box.replaceChildren(...words.map((text, at) => element(at ? "div" : "b", {}, text)));
      box.style.left = `${Math.min(event.clientX + 14, innerWidth - box.offsetWidth - 8)}px`;
      box.style.top = `${Math.min(event.clientY + 16, innerHeight - box.offsetHeight - 8)}px`;
    }
    if (before?.event !== view.hovered?.event || before?.launch !== view.hovered?.launch) paint();
  }

  function wordsOf(under) {
    if (!under) return [];
    const { row, launch, event } = under;
    if (under.pin >= 0) return [launch.head.pins[under.pin].title, launch.head.pins[under.pin].rule];
    if (event >= 0) {
      const clocks = launch.end[event] - launch.start[event], cause = launch.cause[event];
      return [nameOf(launch, event), whoOf(launch, event), ...(clocks ? [timeWords(launch, clocks)] : []), ...(cause >= 0 ? [`ended by: ${nameOf(launch, cause)}, ${whoOf(launch, cause)}`] : [])];
    }
    if (row.series) {
      const all = row.outline ? [...row.series, row.outline] : row.series;
      return [row.title, ...all.map((one) => `${one.name}: ${one.steps.at(under.time).toFixed(row.digits)} ${row.unit}`)];
    }
    return [];
  }

  $("scroll").addEventListener("scroll", () => { view.top = $("scroll").scrollTop; paint(); });
  const strip = $("overview");
  const jump = (event) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const middle = (event.offsetX / strip.getBoundingClientRect().width) * view.end, wide = view.to - view.from;
    view.from = middle - wide / 2;
    view.to = middle + wide / 2;
    view.keep();
    paint();
  };
  strip.addEventListener("pointerdown", jump);
  strip.addEventListener("pointermove", jump);
  $("search").addEventListener("input", (event) => search(event.target.value));
  $("search").addEventListener("keydown", (event) => {
    if (event.key === "Enter") step(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") { event.target.value = ""; search(""); canvas.focus(); }
  });
  $("unit").addEventListener("change", (event) => unitOf(event.target.value));
  $("fit").addEventListener("click", () => { view.fit(); paint(); });
  $("theme").addEventListener("click", () => {
    root.theme = root.theme === "dark" ? "light" : "dark";
    painter.colours();
    paint();
  });
  $("help").addEventListener("click", () => $("keys").showModal());
  $("link").addEventListener("click", async () => {
    history.replaceState(null, "", view.address);
    try { await navigator.clipboard.writeText(location.href); say("link copied"); $("link").textContent = "copied"; } catch { prompt("link to this view", location.href); }
    setTimeout(() => ($("link").textContent = "link"), 1500);
  });
  asked.addEventListener("change", () => { root.theme = asked.matches ? "dark" : "light"; painter.colours(); paint(); });
  addEventListener("resize", paint);
  addEventListener("hashchange", follow);

  function unitOf(unit) {
    const before = view.end;
    view.unit = unit;
    view.from *= view.end / before;
    view.to *= view.end / before;
    $("unit").value = unit;
    paint();
  }

  const middle = () => (view.from + view.to) / 2;
  const KEYS = {
    a: () => view.pan(-(view.to - view.from) * 0.15), d: () => view.pan((view.to - view.from) * 0.15),
    w: () => view.zoom(0.75, middle()), s: () => view.zoom(1 / 0.75, middle()), "+": () => view.zoom(0.6, middle()), "-": () => view.zoom(1 / 0.6, middle()),
    f: () => view.fit(), Escape: () => whole(launches[0]), n: () => step(1), N: () => step(-1),
    ArrowLeft: () => along(-1, 0), ArrowRight: () => along(1, 0), ArrowUp: () => along(0, -1), ArrowDown: () => along(0, 1),
    Enter: () => view.chosen && go(view.chosen.launch, view.chosen.event, true),
    c: () => view.chosen && view.chosen.launch.cause[view.chosen.event] >= 0 && go(view.chosen.launch, view.chosen.launch.cause[view.chosen.event], false),
    i: () => view.chosen && view.chosen.launch.issuer[view.chosen.event] >= 0 && go(view.chosen.launch, view.chosen.launch.issuer[view.chosen.event], false),
    e: () => view.ends.length && go(view.chosen.launch, view.ends[0], false),
    "/": () => $("search").focus(), "?": () => $("keys").showModal(), u: () => unitOf(view.unit === "ns" ? "clocks" : "ns"),
  };

  function along(x, y) {
    const next = view.neighbour(x, y);
    if (next) go(next.launch, next.event, false);
  }

  addEventListener("keydown", (event) => {
    if (event.target.matches("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
    if (event.target.matches("button") && (event.key === "Enter" || event.key === " ")) return;
    const does = KEYS[event.key];
    if (!does) return;
    event.preventDefault();
    does();
    paint();
  });

  function follow() {
    const text = view.follow(location.hash);
    $("search").value = text;
    $("unit").value = view.unit;
    search(text);
    labels();
    if (view.chosen) choose(view.chosen.launch, view.chosen.event); else whole(launches[0]);
    $("scroll").scrollTop = view.top;
    paint();
  }

  // -- the side panel's width --------------------------------------------------------------------------------------

  $("divide").addEventListener("pointerdown", (event) => {
    $("divide").setPointerCapture(event.pointerId);
    const move = (moved) => { document.body.style.setProperty("--side", `${Math.max(260, Math.min(innerWidth - 400, innerWidth - moved.clientX))}px`); paint(); };
    $("divide").addEventListener("pointermove", move);
    $("divide").addEventListener("pointerup", () => $("divide").removeEventListener("pointermove", move), { once: true });
  });

  document.body.classList.toggle("single", launches.length === 1);
  document.body.removeAttribute("aria-busy");
  follow();
  painted();
  window.warploom = { view, painter, state, go, opened: performance.now() };
}

main();
