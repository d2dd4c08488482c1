// The code of a launch three times, always in view: its source (Python or CUDA), PTX, machine code. A place is marked in all of them, and
// each line has a bar for the clocks that warps wait there.

const KEYWORDS = {
  python: /\b(def|return|for|in|if|else|elif|while|with|as|import|from|class|not|and|or|yield|lambda|None|True|False|raise|assert)\b/g,
  cuda: /\b(__global__|__device__|__shared__|__restrict__|__launch_bounds__|auto|bool|break|case|char|class|const|constexpr|continue|do|double|else|extern|false|float|for|if|inline|int|long|namespace|return|short|sizeof|static|struct|switch|template|true|typename|unsigned|using|void|volatile|while)\b/g,
};

function languageOf(file) { return file?.endsWith(".py") ? "python" : "cuda"; }

function escaped(text) {
  return text.replace(/[&<>]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[one]);
}

// A line with a few colours: comments, texts, keywords or opcodes.
function coloured(line, language) {
  const mark = language === "python" ? "#" : "//", at = commentAt(line, mark);
  const code = escaped(at < 0 ? line : line.slice(0, at)), comment = at < 0 ? "" : `<i>${escaped(line.slice(at))}</i>`;
  if (language in KEYWORDS) {
    return code.split(/("[^"]+"|'[^']+')/).map((part, odd) => (odd % 2 ? `<u>${part}</u>` : part.replace(KEYWORDS[language], "<b>$1</b>"))).join("") + comment;
  }
  return code.replace(/^(\s*(?:@!?%?U?P?\w+\s+)?)([.$\w:]+)/, "$1<b>$2</b>") + comment;
}

function commentAt(line, mark) {
  for (let at = line.indexOf(mark); at >= 0; at = line.indexOf(mark, at + 1)) {
    if ((line.slice(0, at).split('"').length - 1) % 2 === 0) return at;
  }
  return -1;
}

class CodeView {
  // panes: {python, ptx, sass}: elements; `chosen(places)` is called with the places of a line that is clicked.
  constructor(panes, clicked) {
    this.panes = panes;
    this.clicked = clicked;
    this.launch = null;
    this.file = {};
    this.marked = [];
    for (const [name, pane] of Object.entries(panes)) {
      pane.addEventListener("click", (event) => {
        const line = event.target.closest("[data-line]");
        if (line && !String(getSelection())) this.clicked(this.launch, name, Number(line.dataset.line), this.file.python);
      });
    }
  }

  // Clocks that warps wait at each place, and those of a line.
  heat(launch) {
    if (launch.heat) return launch.heat;
    const places = new Float64Array(launch.head.places.length);
    for (let at = 0; at < launch.count; at++) {
      if (launch.kind[at] === WAIT) places[launch.place[at]] += launch.end[at] - launch.start[at];
    }
    const python = new Map(), ptx = new Map();
    let most = 1;
    launch.head.places.forEach(([, file, line, ptxLine], at) => {
      if (!places[at]) return;
      python.set(`${file}:${line}`, (python.get(`${file}:${line}`) ?? 0) + places[at]);
      ptx.set(ptxLine, (ptx.get(ptxLine) ?? 0) + places[at]);
      most = Math.max(most, python.get(`${file}:${line}`));
    });
    return (launch.heat = { python, ptx, most });
  }

  fill(launch) {
    if (this.launch === launch) return;
    this.launch = launch;
    this.file = {};
    const { code } = launch.head, heat = this.heat(launch);
    const width = (clocks) => (clocks ? Math.max(2, Math.round((clocks / heat.most) * 26)) : 0);
    this.write("ptx", code.ptx.map((text, at) => [at + 1, text, width(heat.ptx.get(at + 1))]), "ptx");
    this.write("sass", code.sass.map(([text, ptxLine], at) => [at + 1, text, width(heat.ptx.get(ptxLine))]), "sass", code.noSass || "no machine code");
    this.ofPtx = new Map();
    code.sass.forEach(([, ptxLine], at) => { if (ptxLine) this.ofPtx.set(ptxLine, [...(this.ofPtx.get(ptxLine) ?? []), at + 1]); });
    const files = Object.keys(code.python), chooser = this.panes.python.parentElement.querySelector("select");
    const hottest = (file) => code.python[file].reduce((sum, _, at) => sum + (heat.python.get(`${file}:${at + 1}`) ?? 0), 0);
    chooser.replaceChildren(...files.map((file) => new Option(file.split("/").pop(), file)));
    chooser.onchange = () => this.open(chooser.value);
    chooser.hidden = files.length < 2;
    this.open(files.sort((a, b) => hottest(b) - hottest(a))[0]);
  }

  open(file) {
    if (this.file.python === file && file) return;
    const { code } = this.launch.head, heat = this.heat(this.launch), lines = code.python[file] ?? [];
    const width = (clocks) => (clocks ? Math.max(2, Math.round((clocks / heat.most) * 26)) : 0);
    this.file.python = file;
    this.panes.python.parentElement.querySelector("select").value = file ?? "";
    this.write("python", lines.map((text, at) => [at + 1, text, width(heat.python.get(`${file}:${at + 1}`))]), languageOf(file),
      "no source file of the kernel was found here");
  }

  write(name, lines, language, none = "") {
    let quoted = false;
    const shown = (text) => {
      const before = quoted;
      if (language === "python" && text.split('"""').length % 2 === 0) quoted = !quoted;
      return before || quoted ? `<u>${escaped(text)}</u>` : coloured(text, language);
    };
    this.panes[name].innerHTML = lines.length
      ? lines.map(([number, text, heat]) => `<div data-line="${number}"><span class="number">${number}</span><span class="heat">${heat ? `<span style="width:${heat}px"></span>` : ""}</span><code>${shown(text) || " "}</code></div>`).join("")
      : `<p class="none">${escaped(none)}</p>`;
  }

  // Mark a place in all three, and bring it into view.
  mark(launch, place) {
    this.fill(launch);
    for (const element of this.marked) element.classList.remove("marked");
    this.marked = [];
    if (!place) return;
    if (place.file in launch.head.code.python) this.open(place.file);
    this.point("python", place.file === this.file.python ? [place.line] : []);
    this.point("ptx", place.ptx ? [place.ptx] : []);
    this.point("sass", this.ofPtx.get(place.ptx) ?? []);
  }

  point(name, lines) {
    const pane = this.panes[name];
    lines.forEach((line, number) => {
      const element = pane.querySelector(`[data-line="${line}"]`);
      if (!element) return;
      element.classList.add("marked");
      this.marked.push(element);
      if (!number) pane.scrollTop = Math.max(0, element.offsetTop - pane.clientHeight / 2 + 8);
    });
  }
}
