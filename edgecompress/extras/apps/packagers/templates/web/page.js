// The page: loads the model, shows its self-test, what it says of a picture, and runs the benchmark.
import { described } from "./measure.js";
import Model from "./model.js";
import { array } from "./tensors.js";
import { fetched } from "./files.js";
import { brief, element, milliseconds, plot, shown, sizes } from "./show.js";
import { colour, covered, decoded, drawn, frame, levelled, marked, picture } from "./canvas.js";
import { pictured } from "./pictures.js";

const { SPEC } = Model;
const { task } = SPEC.postprocess;
const DIM = 64; // a golden picture whose numbers all lie below this one was made on a scale of its own
/** @type {(id: string) => any} */
const at = (id) => document.getElementById(id);
let model = null;
let given = null; // the picture that is shown: {name, picture}
let golden = null;

// ---------------------------------------------------------------- the self-test

async function test() {
  at("self-test").dataset.state = "running";
  at("again").disabled = true;
  const begin = performance.now();
  try {
    model ??= await Model.load();
    const loaded = performance.now() - begin;
    const steps = await model.selfTest();
    tell(steps);
    if (at("chips").childElementCount === 0) chips(loaded);
  } catch (error) {
    tell(["files", "processing", "inference", "labels"].map((step) => ({ step, ok: false, detail: "not reached" })));
    verdict("fail", `The model does not load: ${error.message}`);
  }
  at("again").disabled = false;
}

function tell(steps) {
  const rows = steps.map(({ step, ok, detail }) => {
    const mark = element("span", "mark", ok ? "✓" : "✕");
    mark.setAttribute("aria-label", ok ? "passed" : "failed");
    mark.setAttribute("role", "img");
    return element("li", ok ? "" : "bad", mark, element("span", "name", step), element("span", "detail", detail));
  });
  at("steps").replaceChildren(...rows);
  const failed = steps.filter(({ ok }) => !ok).map(({ step }) => step);
  if (failed.length) verdict("fail", `Do not use it here: ${failed.join(", ")} failed.`);
  else verdict("pass", "This browser computes what was verified.");
}

function verdict(state, sentence) {
  at("self-test").dataset.state = state;
  at("verdict").textContent = sentence;
}

function chips(loaded) {
  const bytes = SPEC.model.files.reduce((sum, file) => sum + file.bytes, 0);
  const said = {
    model: sizes(bytes),
    takes: SPEC.inputs.map(({ shape, dtype }) => `${shape.join(" × ")} ${dtype}`).join(", "),
    runtime: `ONNX Runtime Web ${model.runtime.version}`,
    loaded: `in ${milliseconds(loaded)}`,
  };
  const items = Object.entries(said).map(([name, text]) => element("li", "", element("span", "", `${name} `), brief(text)));
  at("chips").replaceChildren(...items);
}

// ---------------------------------------------------------------- a picture

async function pictures() {
  const wanted = pictured(SPEC);
  if (!wanted || task === "raw" || !model) return;
  at("picture").hidden = false;
  const raw = SPEC.golden.raw;
  if (raw?.dtype === "uint8") golden = picture(array(await fetched(raw.file), raw.dtype), raw.shape);
  const largest = golden ? golden.data.reduce((a, b) => Math.max(a, b), 0) : 255;
  at("golden").hidden = !golden;
  at("levels-row").hidden = largest >= DIM;
  at("levels").checked = largest < DIM;
  at("levels-text").textContent = `Scale its numbers to 0 to ${largest}, as those of the golden picture`;
  at("levels").addEventListener("change", () => given && given.picture !== golden && ask(given));
  at("file").addEventListener("change", () => at("file").files[0] && opened(at("file").files[0]));
  at("golden").addEventListener("click", () => {
    stopped();
    ask({ name: "The golden picture", picture: golden });
  });
  let stream = null; // of the camera, while it runs
  at("camera").hidden = !navigator.mediaDevices?.getUserMedia;
  at("camera").addEventListener("click", () => (stream ? stopped() : filmed()));
  droppable(at("drop"));
  if (golden) await ask({ name: "The golden picture", picture: golden });

  async function ask(chosen) {
    given = chosen;
    const scaled = at("levels").checked && chosen.picture !== golden;
    const seen = scaled ? levelled(chosen.picture, largest) : chosen.picture;
    drawn(at("canvas"), chosen.picture, chosen.picture === golden ? largest : 255);
    at("canvas").setAttribute("aria-label", brief(chosen.name));
    const { width, height } = chosen.picture;
    const fits = chosen.picture === golden ? "" : `, brought to ${wanted.width} × ${wanted.height}`;
    at("caption").textContent = `${brief(chosen.name)}: ${width} × ${height} pixels${fits}`;
    try {
      const begin = performance.now();
      const found = await model[task](seen); // classify, detect or segment
      ranked(task === "segment" ? model.shares(found) : found, performance.now() - begin);
      if (task === "detect") marked(at("canvas"), found);
      if (task === "segment") covered(at("canvas"), found);
    } catch (error) {
      at("classes").replaceChildren();
      at("timing").textContent = `It has no answer: ${error.message}`;
    }
  }

  async function filmed() {
    try {
      stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" }, audio: false });
    } catch (error) {
      at("timing").textContent = `No camera: ${error.message}`;
      return;
    }
    const [own, canvas] = [stream, document.createElement("canvas")];
    const video = Object.assign(document.createElement("video"), { srcObject: own, muted: true, playsInline: true });
    at("camera").textContent = "Stop the camera";
    await video.play();
    while (stream === own) {
      await ask({ name: "The camera", picture: frame(video, canvas) });
      await new Promise((done) => requestAnimationFrame(done));
    }
  }

  function stopped() {
    stream?.getTracks().forEach((track) => track.stop());
    stream = null;
    at("camera").textContent = "Camera";
  }

  async function opened(file) {
    stopped();
    try {
      await ask({ name: file.name, picture: await decoded(file) });
    } catch {
      at("timing").textContent = `${brief(file.name)}: no picture that this browser opens`;
    }
  }

  function droppable(place) {
    const over = (is) => (event) => {
      event.preventDefault();
      place.classList.toggle("over", is);
    };
    for (const name of ["dragenter", "dragover"]) place.addEventListener(name, over(true));
    place.addEventListener("dragleave", over(false));
    place.addEventListener("drop", (event) => {
      over(false)(event);
      const file = [...event.dataTransfer.files].find(({ type }) => type.startsWith("image/"));
      if (file) opened(file);
    });
  }
}

function ranked(found, ms) {
  const rows = found.map(({ index, label, score }) => {
    const bar = element("span", "bar");
    bar.style.width = `${100 * score}%`;
    const name = element("span", "name", brief(label));
    name.dir = "auto";
    const row = element("li", "", bar, name, element("span", "score", `${(100 * score).toFixed(1)} %`));
    if (task === "segment" && index > 0) row.style.borderLeft = `6px solid ${colour(index)}`; // class 0 is not coloured
    return row;
  });
  at("classes").replaceChildren(...rows);
  const what = { classify: "its classes", detect: `${found.length} things`, segment: `${found.length} regions` };
  at("timing").textContent = `${milliseconds(ms)} from the picture to ${what[task]}`;
}

// ---------------------------------------------------------------- the benchmark

async function benchmark(event) {
  event.preventDefault();
  const n = Number(at("runs").value);
  at("start").disabled = true;
  at("bench-error").hidden = true;
  at("progress").hidden = false;
  at("progress").value = 0;
  try {
    const told = await model.benchmark(n, {
      device: at("device").value,
      progress: (done) => (at("progress").value = done / n),
    });
    result(told);
  } catch (error) {
    at("bench-error").textContent = error.message;
    at("bench-error").hidden = false;
    at("result").hidden = true;
  }
  at("progress").hidden = true;
  at("start").disabled = false;
}

function result(told) {
  const text = `${JSON.stringify(told, null, 1)}\n`;
  const sorted = [...told.latencies_ns].sort((a, b) => a - b);
  const ranked = (share) => sorted[Math.min(sorted.length - 1, Math.ceil(share * sorted.length) - 1)];
  const median = (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
  // What the protocol asks for: a p90 takes 29 runs.
  const tiles = { median, fastest: sorted[0], "90 % within": sorted.length >= 29 ? ranked(0.9) : null, slowest: sorted.at(-1) };
  at("tiles").replaceChildren(
    ...Object.entries(tiles).map(([name, ns]) => {
      const [number, unit] = ns === null ? ["–", ""] : milliseconds(ns / 1e6).split(" ");
      return element("div", "", element("dt", "", name), element("dd", "", number, element("small", "", ` ${unit}`)));
    }),
  );
  plot(at("plot"), told.latencies_ns, median);
  at("plot-title").textContent = `Latency of ${sorted.length} inferences in order, median ${milliseconds(median / 1e6)}`;
  const { warmup, threads } = told.run;
  at("plot-caption").textContent =
    `${sorted.length} inferences in order after ${warmup} to warm up, ${threads} thread${threads > 1 ? "s" : ""}; ` +
    `from the fastest to the slowest, logarithmic; the dashed line is the median. This page's clock has steps of ${(told.clock_step_ns / 1000).toLocaleString("en")} µs. ` +
    `The self-test was a ${told.self_test}.`;
  at("json").textContent = shown(text);
  URL.revokeObjectURL(at("download").href);
  at("download").href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  at("download").download = `${SPEC.slug}-measured.json`;
  at("copy").onclick = () => navigator.clipboard?.writeText(text).then(() => (at("copy").textContent = "Copied"));
  at("copy").hidden = !navigator.clipboard;
  at("result").hidden = false;
}

// ---------------------------------------------------------------- the model

async function facts() {
  const card = JSON.parse(new TextDecoder().decode(await fetched("model_card.json")));
  const tensors = (specs) => specs.map((s) => `${brief(s.name)}: ${s.dtype} ${s.shape.join(" × ")} ${s.layout}`).join("\n");
  const { preprocess, quality } = card;
  const rows = {
    Input: tensors(card.inputs),
    Output: tensors(card.outputs),
    Processing: preprocess ? processing(preprocess) : "none is declared",
    Compression: card.compression.map(({ technique }) => brief(technique)).join(", ") || "none",
    Quality: quality ? judged(quality) : "not measured",
    Verified: `with ${card.runtime.name} ${card.runtime.version}`,
    Licence: card.licence || "not stated",
    Version: `${card.version}, of ${card.created.slice(0, 10)}`,
    sha256: SPEC.model.files.map(({ path, sha256 }) => `${path}\n${sha256}`).join("\n"),
  };
  at("rows").replaceChildren(
    ...Object.entries(rows).map(([name, text]) => {
      const head = element("th", "", name);
      head.setAttribute("scope", "row");
      return element("tr", "", head, element("td", "", shown(text)));
    }),
  );
}

function judged({ metric, before, after, n }) {
  const rounded = (value) => (value === null ? "–" : Number(value.toPrecision(4)));
  return `${brief(metric)} ${rounded(after)}, before ${rounded(before)}; ${n ?? "–"} test items`;
}

function processing(p) {
  const per = (values) => values.map((v) => Number(v.toPrecision(6))).join(", ");
  const audio = p.spectrogram && "spectrogram";
  const said = [
    p.resize && `${{ stretch: "both sides", letterbox: "letterbox" }[p.fit] ?? "shorter side"} ${p.resize}`,
    p.crop && `crop ${p.crop}`,
    audio || p.colour,
    p.scale !== 1 && `× ${Number(p.scale.toPrecision(6))}`,
    p.mean.length && `mean ${per(p.mean)}`,
    p.std.length && `std ${per(p.std)}`,
    p.layout,
  ];
  return said.filter(Boolean).join(" → ");
}

async function start() {
  at("late").remove();
  facts();
  await test();
  at("again").addEventListener("click", test);
  at("bench").addEventListener("submit", benchmark);
  at("start").disabled = !model;
  at("device").placeholder = (await described()).name;
  await pictures();
  document.documentElement.dataset.ready = "yes";
}

start();
