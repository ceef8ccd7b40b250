// Between a picture and the model: to its input before, from its scores, boxes and regions after.
import { boxes, colour, image, imageOfRgba, placement, preprocess, resize as resized, segments, softmax, topK } from "./processing.js";
import { quantized, real } from "./tensors.js";

/**
 * Height, width and channels of the pictures that a model takes; null where it takes none that are declared.
 * @param {any} spec
 * @returns {{height: number, width: number, channels: number} | null}
 */
export function pictured(spec) {
  const declared = spec.preprocess;
  const input = declared && !declared.spectrogram && spec.inputs.find(({ name }) => name === declared.input);
  if (!input) return null;
  const [, ...sizes] = input.shape;
  const [height, width, channels = 1] = declared.layout === "NCHW" ? [sizes[1], sizes[2], sizes[0]] : sizes;
  const whole = sizes.length === 3 || (sizes.length === 2 && declared.layout === "");
  return whole && height > 1 && width > 1 && [1, 3].includes(channels) ? { height, width, channels } : null;
}

/**
 * The input that a picture becomes. One of a size that the declared processing does not bring to the model's is scaled
 * before, as little as covers it, and cut about the centre.
 * @param {any} picture an ImageData, or {data, width, height, channels}
 * @param {any} spec
 */
export function prepared(picture, spec) {
  const wanted = pictured(spec);
  if (!wanted) throw new Error("no processing of pictures is declared for this model; give run() its input");
  const declared = spec.preprocess;
  const { data, width, height, channels = 4 } = picture;
  const given = channels === 4 ? imageOfRgba(data, height, width) : image(Uint8Array.from(data), height, width, channels);
  // A model of one channel that declares no colour was fed grey pictures.
  const unsaid = wanted.channels === 1 && declared.colour !== "GRAY";
  const coloured = unsaid ? colour(given, "GRAY") : given;
  return of(preprocess(fitted(coloured, wanted, declared), declared), spec);
}

/**
 * The golden item as it came, processed: what it became is the golden input.
 * @param {any} raw its numbers
 * @param {number[]} shape
 * @param {any} spec
 */
export function processed(raw, shape, spec) {
  const given = pictured(spec) ? image(raw, shape[0], shape[1], shape[2] ?? 1) : raw;
  return of(preprocess(given, spec.preprocess), spec);
}

/**
 * Classes by falling probability.
 * @param {Record<string, any>} answers
 * @param {any} spec
 * @param {number} top
 * @returns {{index: number, score: number}[]}
 */
export function classes(answers, spec, top) {
  const scores = real(answers[scored(spec).name], scored(spec));
  const shares = spec.postprocess.probabilities ? scores : softmax(scores);
  return Array.from(topK(scores, top), (index) => ({ index, score: shares[index] }));
}

/**
 * What a detector finds, the surest first: corners and key points in pixels of the picture.
 * @param {Record<string, any>} answers
 * @param {any} spec
 * @param {{height: number, width: number} | null} picture null: they are in pixels of the input
 * @returns {{index: number, score: number, box: number[], points: number[][]}[]}
 */
export function things(answers, spec, picture) {
  const how = spec.postprocess.detect;
  if (spec.postprocess.task !== "detect" || !how) throw new Error("this model finds no boxes; use run()");
  const read = spec.outputs.map((output) => [output.name, { numbers: real(answers[output.name], output), shape: output.shape }]);
  return boxes(how, Object.fromEntries(read), picture, picture && placed(picture, spec));
}

/**
 * The class of each pixel of the picture, row by row; 255 where the model saw nothing.
 * @param {Record<string, any>} answers
 * @param {any} spec
 * @param {{height: number, width: number} | null} picture null: of each cell of the output
 * @returns {{width: number, height: number, classes: Uint8Array}}
 */
export function regions(answers, spec, picture) {
  const { task, segment, output: name } = spec.postprocess;
  if (task !== "segment") throw new Error("this model tells no classes of pixels; use run()");
  const output = spec.outputs.find((each) => each.name === name);
  const read = { numbers: real(answers[name], output), shape: output.shape };
  return segments(segment, read, picture, picture && placed(picture, spec));
}

/** @param {any} spec */
export function scored(spec) {
  const found = spec.outputs.find(({ name }) => name === spec.postprocess.output);
  if (spec.postprocess.task !== "classify" || !found) throw new Error("this model does not classify; use run()");
  return found;
}

/** Numbers in the dtype of the input, quantized where it says so. */
function of(values, spec) {
  const input = spec.inputs.find(({ name }) => name === spec.preprocess.input);
  return quantized(values, input);
}

function fitted(picture, wanted, declared) {
  const to = scaledTo(picture, wanted, declared);
  return to ? cut(resized(picture, to.tall, to.wide), wanted) : picture;
}

/** To which size a picture is scaled before; null where the declared processing brings it to the model's. */
function scaledTo({ height, width }, wanted, { resize, crop }) {
  if (resize) return null;
  const scale = Math.max(wanted.height / height, wanted.width / width);
  if (crop && scale <= 1) return null;
  return { tall: Math.round(height * scale), wide: Math.round(width * scale) };
}

/** Where a picture lies in the input that it becomes: its placement. */
function placed(picture, spec) {
  const [wanted, declared] = [pictured(spec), spec.preprocess];
  const to = wanted && scaledTo(picture, wanted, declared);
  if (!to) return declared && placement(picture.height, picture.width, declared);
  const [left, top] = [(to.wide - wanted.width) >> 1, (to.tall - wanted.height) >> 1];
  return { across: to.wide / picture.width, down: to.tall / picture.height, left, top };
}

function cut(picture, { height, width }) {
  if (picture.height === height && picture.width === width) return picture;
  const [top, left] = [(picture.height - height) >> 1, (picture.width - width) >> 1];
  const row = width * picture.channels;
  const bytes = new Uint8Array(height * row);
  for (let y = 0; y < height; y++) {
    const begin = ((top + y) * picture.width + left) * picture.channels;
    bytes.set(picture.bytes.subarray(begin, begin + row), y * row);
  }
  return image(bytes, height, width, picture.channels);
}

