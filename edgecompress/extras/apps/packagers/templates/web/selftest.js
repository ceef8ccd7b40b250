// The self-test: whether what is here is what was verified, and whether this device computes the same with it.
import { fetched, sha256 } from "./files.js";
import { processed, regions, scored, things } from "./pictures.js";
import { largestError, relativeRms, shares, topK } from "./processing.js";
import { array, numbers, real } from "./tensors.js";

const COMPILED = ["slug", "version", "model", "inputs", "outputs", "preprocess", "postprocess", "labels", "golden"];
const STEPS = { files, processing, inference, labels };

/**
 * Every step is taken, also after one that failed.
 * @param {any} model
 * @param {any} spec what was compiled in
 * @returns {Promise<any[]>}
 */
export async function checked(model, spec) {
  const held = new Map();
  const read = (path) => {
    if (!held.has(path)) held.set(path, fetched(path, model.base, "no-store"));
    return held.get(path);
  };
  const found = [];
  for (const [step, look] of Object.entries(STEPS)) {
    try {
      found.push({ step, ok: true, detail: await look({ model, spec, read }) });
    } catch (error) {
      found.push({ step, ok: false, detail: error.message });
    }
  }
  return found;
}

/** The golden inputs as `run` takes them. */
export async function goldenInputs(spec, read) {
  const items = spec.golden.inputs.map(async (item) => [item.name, array(await read(item.file), item.dtype)]);
  return Object.fromEntries(await Promise.all(items));
}

async function files({ model, spec, read }) {
  const loaded = [...spec.model.files, { path: spec.labels.file, sha256: spec.labels.sha256 }];
  for (const { path, sha256: compiled } of loaded) same(path, model.digests[path], compiled);
  const items = [spec.golden.raw, ...spec.golden.inputs, ...spec.golden.outputs].filter(Boolean);
  for (const item of items) same(item.file, await sha256(await read(item.file)), item.sha256);
  return `${loaded.length + items.length} files, sha256 as compiled in`;
}

function same(path, found, compiled) {
  const shown = (digest) => `${digest}`.slice(0, 12);
  if (found !== compiled) throw new Error(`${path}: its sha256 is ${shown(found)}…, not ${shown(compiled)}…`);
}

async function processing({ spec, read }) {
  const card = JSON.parse(new TextDecoder().decode(await read("model_card.json")));
  const differs = COMPILED.find((key) => sorted(card[key]) !== sorted(spec[key]));
  if (differs) throw new Error(`model_card.json: ${differs} is not what was compiled in`);
  const { raw, processing: limits } = spec.golden;
  if (!spec.preprocess) return "none is declared: the model takes its input as it comes";
  if (!raw) return "the constants are the card's; the golden item was not kept as it came";
  const input = spec.golden.inputs.find(({ name }) => name === spec.preprocess.input);
  const wanted = numbers(array(await read(input.file), input.dtype), input.dtype);
  const found = processed(array(await read(raw.file), raw.dtype), raw.shape, spec);
  const whole = !input.dtype.startsWith("float");
  const largest = wanted.reduce((most, x) => Math.max(most, Math.abs(x)), 1);
  const error = largestError(wanted, numbers(found, input.dtype));
  const limit = whole ? limits.int8 : limits.float * largest;
  if (!(error <= limit)) throw new Error(`raw.bin becomes another input: off by ${short(error)}, ${short(limit)} at most`);
  return error === 0 ? "the golden input, to the bit" : `off by ${short(error)} at most, of ${short(limit)} allowed`;
}

async function inference({ model, spec, read }) {
  const answers = await model.run(await goldenInputs(spec, read));
  let worst = 0;
  for (const item of spec.golden.outputs) {
    const output = spec.outputs.find(({ name }) => name === item.name);
    const wanted = numbers(array(await read(item.file), item.dtype), item.dtype);
    const moved = relativeRms(wanted, real(answers[item.name], output));
    if (!(moved <= spec.golden.tolerance)) {
      throw new Error(`${item.name} is off by ${short(moved)} of its RMS, ${spec.golden.tolerance} at most`);
    }
    worst = Math.max(worst, moved);
  }
  if (worst === 0) return "the golden output, to the bit";
  return `off by ${short(worst)} of the output's RMS, of ${spec.golden.tolerance} allowed`;
}

async function labels({ model, spec, read }) {
  if (spec.postprocess.task === "raw") return "the model does not classify";
  if (model.labels.length !== spec.labels.count) {
    throw new Error(`${spec.labels.file} has ${model.labels.length} labels, not ${spec.labels.count}`);
  }
  if (spec.postprocess.task === "detect") return surest({ model, spec, read });
  if (spec.postprocess.task === "segment") return commonest({ model, spec, read });
  const output = scored(spec);
  const item = spec.golden.outputs.find(({ name }) => name === output.name);
  const [wanted] = topK(numbers(array(await read(item.file), item.dtype), item.dtype), 1);
  const answers = await model.run(await goldenInputs(spec, read));
  const [found] = topK(real(answers[output.name], output), 1);
  const named = (index) => brief(model.labels[index] ?? `class ${index}`);
  if (found !== wanted) throw new Error(`the best class is ${named(found)}, the golden answer's ${named(wanted)}`);
  return `the best class is ${named(found)}, as in the golden answer`;
}

/** The golden answer, and what tells that its numbers are real ones. */
async function answered(spec, read) {
  const golden = {};
  for (const { name, file, dtype } of spec.golden.outputs) golden[name] = array(await read(file), dtype);
  return [golden, { ...spec, outputs: spec.outputs.map((output) => ({ ...output, dtype: "float32", quantization: null })) }];
}

async function surest({ model, spec, read }) {
  const [golden, plain] = await answered(spec, read);
  const [wanted] = things(golden, plain, null);
  const [found] = model.detections(await model.run(await goldenInputs(spec, read)));
  if (found?.index !== wanted?.index) throw new Error("what it is surest of is not that of the golden answer");
  return found ? `it is surest of ${brief(found.label)}, as in the golden answer` : "it finds nothing, as in the golden answer";
}

async function commonest({ model, spec, read }) {
  const [golden, plain] = await answered(spec, read);
  const [wanted] = shares(regions(golden, plain, null));
  const [found] = model.shares(model.mask(await model.run(await goldenInputs(spec, read))));
  if (found.index !== wanted.index) throw new Error("its most frequent class is not that of the golden answer");
  return `the most frequent class is ${brief(found.label)}, as in the golden answer`;
}

/** JSON with its keys in order: equal texts are equal values. */
function sorted(value) {
  const table = (x) => x && typeof x === "object" && !Array.isArray(x);
  const ordered = (x) => Object.fromEntries(Object.entries(x).sort(([a], [b]) => (a < b ? -1 : 1)));
  return JSON.stringify(value, (_, x) => (table(x) ? ordered(x) : x));
}

function brief(label) {
  return label.length > 60 ? `${label.slice(0, 60)}…` : label;
}

function short(number) {
  const plain = number === 0 || (number >= 0.001 && number < 1000);
  return plain ? `${Number(number.toPrecision(2))}` : number.toExponential(1);
}
