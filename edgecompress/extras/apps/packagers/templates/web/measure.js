// The benchmark: inferences timed one by one, and the device they ran on, as `edgecompress report` reads it.
import { fetched, sha256 } from "./files.js";
import { goldenInputs } from "./selftest.js";

const FEWEST = 20;
const MOST = 100_000;
const WARM = { runs: 10, ms: 500 }; // at least: by then the browser has compiled what it will compile again
const BREATH_MS = 50; // how long the page may go without drawing

/**
 * @param {any} model
 * @param {any} spec
 * @param {number} n
 * @param {{device?: string, progress?: (done: number) => void}} options
 */
export async function measured(model, spec, n, { device = "", progress = () => {} }) {
  if (!Number.isInteger(n) || n < FEWEST || n > MOST) throw new Error(`inferences: ${FEWEST} to ${MOST}, not ${n}`);
  const steps = await model.selfTest();
  const inputs = await goldenInputs(spec, (path) => fetched(path, model.base));
  const step = clockStep();
  const started = new Date().toISOString();
  const warmup = await warmed(model, inputs);
  const latencies = await timed(model, inputs, n, progress);
  if (latencies.includes(0)) throw new Error(tooCoarse(step));
  return {
    schema: "edgecompress/measured/1",
    model: { name: spec.name, sha256: await digest(spec) },
    runtime: model.runtime,
    device: await described(device),
    run: { threads: model.threads, batch: 1, warmup, started },
    self_test: steps.every(({ ok }) => ok) ? "pass" : "fail",
    latencies_ns: latencies,
    clock: "performance.now",
    clock_step_ns: step,
  };
}

async function warmed(model, inputs) {
  const begin = performance.now();
  let runs = 0;
  for (; runs < WARM.runs || performance.now() - begin < WARM.ms; runs++) await model.run(inputs);
  return runs;
}

async function timed(model, inputs, n, progress) {
  const found = [];
  let drawn = performance.now();
  while (found.length < n) {
    const begin = performance.now();
    await model.run(inputs);
    const end = performance.now();
    found.push(Math.round((end - begin) * 1e6));
    if (end - drawn < BREATH_MS) continue;
    progress(found.length);
    await new Promise((resolve) => setTimeout(resolve));
    drawn = performance.now();
  }
  progress(n);
  return found;
}

/** The smallest difference of two readings, in nanoseconds: browsers round their clock. */
export function clockStep() {
  let smallest = Infinity;
  const end = performance.now() + 30;
  for (let last = performance.now(); last < end; ) {
    const now = performance.now();
    if (now > last) smallest = Math.min(smallest, now - last);
    last = now;
  }
  return Number.isFinite(smallest) ? Math.max(1, Math.round(smallest * 1e6)) : 30_000_000;
}

function tooCoarse(step) {
  const finer = "open it by serve.py on this machine, or over HTTPS with serve.py's headers: the clock is finer there";
  return `an inference is shorter than the clock's step of ${step / 1000} µs, as this page was opened; ${finer}`;
}

async function digest(spec) {
  const lines = spec.model.files.map((file) => `${file.path}\0${file.sha256}\n`).join("");
  return sha256(new TextEncoder().encode(lines).buffer);
}

/**
 * What the browser tells of the device; it names no processor. `name` is the owner's word for it.
 * @param {string} name
 */
export async function described(name = "") {
  const hints = ["architecture", "bitness", "model", "platformVersion"];
  /** @type {any} */
  const hinting = navigator; // not every browser tells more than its userAgent
  const told = (await hinting.userAgentData?.getHighEntropyValues?.(hints).catch(() => null)) ?? {};
  const os = [told.platform ?? system(), told.platformVersion].filter(Boolean).join(" ");
  const browser = brand(told.brands);
  const cores = Math.min(navigator.hardwareConcurrency || 0, 4096) || null;
  const called = (name.trim() || told.model || `${browser || "a browser"} on ${os || "an unknown system"}`).slice(0, 200);
  return { name: called, platform: `web-${architecture(told)}`, os: os.slice(0, 200), cpu: "", cores, browser };
}

function architecture({ architecture: kind = "", bitness = "" }) {
  const words = `${navigator.userAgent} ${navigator.platform}`;
  if (kind === "x86") return bitness === "64" ? "x86_64" : "x86";
  if (kind === "arm") return bitness === "64" ? "arm64" : "arm";
  if (/aarch64|arm64|armv8|iPhone|iPad/.test(words)) return "arm64";
  if (/armv7|armv6/.test(words)) return "arm";
  if (/Macintosh/.test(words)) return "unknown"; // every Mac says Intel
  return /x86_64|Win64|x64|WOW64/.test(words) ? "x86_64" : "unknown";
}

function system() {
  const known = { Android: /Android/, iOS: /iPhone|iPad/, Windows: /Windows/, macOS: /Macintosh/, Linux: /Linux/ };
  return Object.keys(known).find((name) => known[name].test(navigator.userAgent)) ?? "";
}

function brand(brands = []) {
  const real = brands.filter(({ brand: name }) => !/not.?a.?brand/i.test(name));
  const best = real.find(({ brand: name }) => name !== "Chromium") ?? real[0];
  if (best) return `${best.brand} ${best.version}`.slice(0, 200);
  const words = { Edg: "Edge", OPR: "Opera", Firefox: "Firefox", Chrome: "Chrome", Version: "Safari" };
  const version = (word) => new RegExp(`${word}\\/(\\d+)`).exec(navigator.userAgent)?.[1];
  const word = Object.keys(words).find(version);
  return word ? `${words[word]} ${version(word)}` : "";
}
