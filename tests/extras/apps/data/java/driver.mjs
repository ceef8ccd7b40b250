// Runs every case of FOLDER/cases.json in one process: each reads FOLDER/NAME.in and writes FOLDER/NAME.js.
// node driver.mjs PROCESSING FOLDER

import {readFileSync, writeFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const [, , module, folder] = process.argv;
const p = await import(pathToFileURL(module));

const ANSWERS = {
  preprocess: (given, raw) => stored(p.preprocess(given.dtype === "uint8" ? picture(given, raw) : p.numbers(raw, given.dtype), given.declared), given),
  boxes: (given, raw) => words(boxes(given, p.numbers(raw, "float32"))),
  regions: (given, raw) => regions(given, p.numbers(raw, "float32")),
  resize: (given, raw) => p.resize(picture(given, raw), given.height, given.width).bytes,
  real: (given, raw) => bytes(p.dequantize(p.numbers(raw, given.dtype), given.scale, given.zero_point)),
  quantize: (given, raw) => stored(p.numbers(raw, given.dtype), given),
  softmax: (given, raw) => bytes(p.softmax(p.numbers(raw, given.dtype))),
  top: (given, raw) => JSON.stringify(p.topK(p.numbers(raw, given.dtype), given.k)),
  numbers: (given, raw) => words(p.numbers(raw, given.dtype)),
  rms: (given, raw) => words(errors(p.numbers(raw, given.dtype))),
  sha256: (given, raw) => p.sha256(raw),
  json: (given, raw) => raw,
};

for (const given of JSON.parse(readFileSync(`${folder}/cases.json`, "utf8"))) {
  const raw = new Uint8Array(readFileSync(`${folder}/${given.name}.in`));
  let found;
  try {
    found = await ANSWERS[given.do](given, raw);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    found = `refused: ${error.message}`;
  }
  writeFileSync(`${folder}/${given.name}.js`, found);
}

function picture({shape}, raw) {
  return p.image(raw, shape[0], shape[1], shape[2] ?? 1);
}

/** Class, score, corners and points of each box; the outputs lie one behind the other. */
function boxes({how, outputs, picture, declared}, numbers) {
  let begin = 0;
  const read = outputs.map(({name, shape}) => {
    const count = shape.reduce((a, b) => a * b, 1);
    return [name, {numbers: numbers.subarray(begin, (begin += count)), shape}];
  });
  const found = p.boxes(how, Object.fromEntries(read), ...placed(picture, declared));
  return found.flatMap(({index, score, box, points}) => [index, score, ...box, ...points.flat()]);
}

/** The class of each pixel. */
function regions({how, shape, picture, declared}, numbers) {
  return p.segments(how, {numbers, shape}, ...placed(picture, declared)).classes;
}

/** A picture's size, and where it lies in the input. */
function placed(picture, declared) {
  if (!picture) return [null, null];
  return [{height: picture[0], width: picture[1]}, p.placement(...picture, declared)];
}

/** In the dtype that the case asks for: int8, uint8, or as it is. */
function stored(x, given) {
  return bytes(given.as === "float32" ? x : p.quantize(x, given.scale, given.zero_point, given.as));
}

function bytes(array) {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

/** The first half is wanted, the second half found. */
function errors(x) {
  const half = x.length / 2;
  return [p.relativeRms(x.subarray(0, half), x.subarray(half)), p.largestError(x.subarray(0, half), x.subarray(half))];
}

function words(x) {
  return Array.from(x, (each) => `${each}\n`).join("");
}
