// From raw data to a model's input, and from its output to classes: what the Java of the Android package computes.
// A picture is {bytes: Uint8Array or Uint8ClampedArray, height, width, channels}, the channels of a pixel side by side.
// Single precision is kept by Math.fround and Float32Array; mistakes of the caller are a RangeError.

const BITS = 32 - 8 - 2; // Pillow's weights are whole numbers of 1 / 2^22

// --------------------------------------------------------------------------- pictures

/** A picture over bytes, which are not copied. */
export function image(bytes, height, width, channels) {
  if (!(height >= 1 && width >= 1) || (channels !== 1 && channels !== 3)) {
    throw new RangeError(`a picture has 1 or 3 channels and a size; not ${height} x ${width} x ${channels}`);
  }
  if (bytes.length !== height * width * channels) {
    throw new RangeError(`${height} x ${width} x ${channels} numbers wanted, ${bytes.length} given`);
  }
  return {bytes, height, width, channels};
}

/** Out of RGBA numbers, as a canvas's getImageData gives them; what is transparent is not blended. */
export function imageOfRgba(rgba, height, width) {
  if (rgba.length !== 4 * height * width) {
    throw new RangeError(`${height} x ${width} pixels wanted, ${rgba.length / 4} given`);
  }
  const bytes = new Uint8Array(3 * height * width);
  for (let i = 0; i < height * width; i++) {
    bytes[3 * i] = rgba[4 * i];
    bytes[3 * i + 1] = rgba[4 * i + 1];
    bytes[3 * i + 2] = rgba[4 * i + 2];
  }
  return image(bytes, height, width, 3);
}

/** The shorter side as long as `size`, the longer one in proportion, rounded down; to the bit as Pillow does it. */
export function resizeShorterSide(picture, size) {
  if (!(size >= 1)) throw new RangeError(`a side is at least 1 pixel, not ${size}`);
  const shorter = Math.min(picture.height, picture.width);
  const scaled = (side) => Math.floor((size * side) / shorter);
  return resize(picture, scaled(picture.height), scaled(picture.width));
}

/** The whole picture in a square of `size` pixels, in the middle, between bars of one grey. */
export function letterbox(picture, size, bars) {
  const {tall, wide} = fittedSize(picture.height, picture.width, {resize: size, fit: "letterbox"});
  const inside = resize(picture, tall, wide);
  const {channels} = picture;
  const [left, top] = [(size - wide) >> 1, (size - tall) >> 1];
  const bytes = new Uint8Array(size * size * channels).fill(bars);
  for (let y = 0; y < tall; y++) {
    bytes.set(inside.bytes.subarray(y * wide * channels, (y + 1) * wide * channels), ((top + y) * size + left) * channels);
  }
  return image(bytes, size, size, channels);
}

/** The height and width that a picture is resized to, by a card's `preprocess`. */
function fittedSize(height, width, {resize: size, fit}) {
  if (fit === "stretch") return {tall: size, wide: size};
  if (fit === "letterbox") {
    const long = Math.max(height, width);
    const scaled = (side) => Math.max(1, Math.floor((2 * size * side + long) / (2 * long)));
    return {tall: scaled(height), wide: scaled(width)};
  }
  const shorter = Math.min(height, width);
  return {tall: Math.floor((size * height) / shorter), wide: Math.floor((size * width) / shorter)};
}

/** Where a picture lies in the input that it becomes: there x is `across` * x - `left`, and y `down` * y - `top`. */
export function placement(height, width, declared) {
  const {tall, wide} = declared.resize ? fittedSize(height, width, declared) : {tall: height, wide: width};
  const side = declared.fit === "letterbox" ? declared.resize : declared.crop;
  const begin = (length) => {
    if (!side) return 0;
    return length >= side ? roundHalfEven((length - side) / 2) : -((side - length) >> 1);
  };
  return {across: wide / width, down: tall / height, left: begin(wide), top: begin(tall)};
}

/** To exactly this size: bilinear with antialiasing, rows first, then columns, rounded to 8 bits after each. */
export function resize(picture, height, width) {
  const wide = width === picture.width ? picture : rows(picture, weights(picture.width, width));
  return height === wide.height ? wide : columns(wide, weights(wide.height, height));
}

/** For each output pixel of one axis: the first input pixel that counts, and the weights of it and those after. */
function weights(from, to) {
  const scale = Math.fround(from) / to;
  const reach = Math.max(scale, 1);
  return Array.from({length: to}, (_, i) => {
    const centre = (i + 0.5) * scale;
    const first = Math.max(0, Math.trunc(centre - reach + 0.5));
    const end = Math.min(from, Math.trunc(centre + reach + 0.5));
    const heights = [];
    for (let x = first; x < end; x++) {
      heights.push(Math.max(0, 1 - Math.abs((x - centre + 0.5) * (1 / reach))));
    }
    const sum = heights.reduce((a, b) => a + b, 0);
    return {first, of: heights.map((h) => Math.trunc(0.5 + (sum === 0 ? h : h / sum) * (1 << BITS)))};
  });
}

function rows(picture, weighted) {
  const {bytes, height, channels} = picture;
  const found = new Uint8Array(height * weighted.length * channels);
  for (let y = 0, at = 0; y < height; y++) {
    for (const {first, of} of weighted) {
      for (let c = 0; c < channels; c++) {
        found[at++] = mean(bytes, (y * picture.width + first) * channels + c, channels, of);
      }
    }
  }
  return image(found, height, weighted.length, channels);
}

function columns(picture, weighted) {
  const step = picture.width * picture.channels;
  const found = new Uint8Array(weighted.length * step);
  weighted.forEach(({first, of}, y) => {
    for (let i = 0; i < step; i++) {
      found[y * step + i] = mean(picture.bytes, first * step + i, step, of);
    }
  });
  return image(found, weighted.length, picture.width, picture.channels);
}

function mean(bytes, begin, step, weighted) {
  let sum = 1 << (BITS - 1);
  for (let i = 0; i < weighted.length; i++) sum += bytes[begin + i * step] * weighted[i];
  return Math.max(0, Math.min(255, sum >> BITS));
}

/** The square of `size` pixels about the centre. */
export function crop(picture, size) {
  const {height, width, channels} = picture;
  if (!(size >= 1 && size <= Math.min(height, width))) {
    throw new RangeError(`crop ${size} of a picture of ${width} x ${height}; resize it first`);
  }
  const [top, left] = [roundHalfEven((height - size) / 2), roundHalfEven((width - size) / 2)];
  const bytes = new Uint8Array(size * size * channels);
  for (let y = 0; y < size; y++) {
    const begin = ((top + y) * width + left) * channels;
    bytes.set(picture.bytes.subarray(begin, begin + size * channels), y * size * channels);
  }
  return image(bytes, size, size, channels);
}

/** A picture in RGB or grey as "RGB", "BGR" or "GRAY" (ITU-R 601-2, in 1/65536). */
export function colour(picture, order) {
  const {bytes, height, width, channels} = picture;
  if (!["RGB", "BGR", "GRAY"].includes(order)) throw new RangeError(`no colour order is called ${order}`);
  if (channels === (order === "GRAY" ? 1 : 3)) return order === "BGR" ? reversed(picture) : picture;
  if (order !== "GRAY") throw new RangeError(`the picture is grey, the model takes ${order}`);
  const grey = new Uint8Array(height * width);
  for (let i = 0; i < grey.length; i++) {
    grey[i] = (19595 * bytes[3 * i] + 38470 * bytes[3 * i + 1] + 7471 * bytes[3 * i + 2] + 0x8000) >> 16;
  }
  return image(grey, height, width, 1);
}

function reversed({bytes, height, width}) {
  const found = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; i += 3) {
    found[i] = bytes[i + 2];
    found[i + 1] = bytes[i + 1];
    found[i + 2] = bytes[i];
  }
  return image(found, height, width, 3);
}

// --------------------------------------------------------------------------- numbers

/** x * scale, then (x - mean) / std, each operation rounded to 32 bits; mean and std: none, one, or one per channel. */
export function normalise(x, channels, scale = 1, mean = [], std = []) {
  const factor = Math.fround(scale);
  const [means, stds] = [Float32Array.from(mean.length ? mean : [0]), Float32Array.from(std.length ? std : [1])];
  if (stds.includes(0)) throw new RangeError("std must not be zero");
  const fits = (values) => values.length === 1 || values.length === channels;
  if (x.length % channels || !fits(means) || !fits(stds)) {
    throw new RangeError(
      `${x.length} numbers, ${means.length} means, ${stds.length} stds: not of ${channels} channels`,
    );
  }
  const found = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) {
    const scaled = Math.fround(Math.fround(x[i]) * factor);
    found[i] = Math.fround(scaled - means[i % means.length]) / stds[i % stds.length];
  }
  return found;
}

/** Numbers [height][width][channels] as "NCHW" or "NHWC". */
export function layout(x, channels, order) {
  if (!["NCHW", "NHWC"].includes(order)) throw new RangeError(`no layout is called ${order}`);
  if (!(channels >= 1) || x.length % channels) {
    throw new RangeError(`${x.length} numbers are not of ${channels} channels`);
  }
  if (order === "NHWC" || channels === 1) return x;
  const pixels = x.length / channels;
  const found = new x.constructor(x.length);
  for (let i = 0; i < x.length; i++) found[(i % channels) * pixels + Math.floor(i / channels)] = x[i];
  return found;
}

/** Real numbers as the whole ones of a quantized model: rounded half to even, what is beyond the dtype cut off. */
export function quantize(x, scale, zeroPoint, dtype) {
  const step = Math.fround(scale);
  if (!(step > 0)) throw new RangeError(`a scale is above 0, not ${scale}`);
  const [found, lowest, highest] = whole(x.length, dtype);
  for (let i = 0; i < x.length; i++) {
    const steps = roundHalfEven(Math.fround(Math.fround(x[i]) / step)) + zeroPoint;
    found[i] = Math.max(lowest, Math.min(highest, steps));
  }
  return found;
}

function whole(length, dtype) {
  if (dtype === "int8") return [new Int8Array(length), -128, 127];
  if (dtype === "uint8") return [new Uint8Array(length), 0, 255];
  throw new RangeError(`numbers are quantized to int8 or uint8 here, not ${dtype}`);
}

/** What stored whole numbers mean: (stored - zero point) * scale. */
export function dequantize(stored, scale, zeroPoint) {
  const step = Math.fround(scale);
  return Float32Array.from(stored, (s) => (s - zeroPoint) * step);
}

function roundHalfEven(x) {
  const down = Math.floor(x);
  if (x - down !== 0.5) return Math.round(x);
  return down % 2 === 0 ? down : down + 1;
}

/** Scores as probabilities; the largest is taken off first so that nothing overflows. */
export function softmax(scores) {
  let largest = -Infinity;
  for (const score of scores) largest = Math.max(largest, score);
  const powers = Float64Array.from(scores, (score) => Math.exp(score - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return Float32Array.from(powers, (p) => p / sum);
}

/** Indices of the k highest scores (all, where there are fewer), best first; equal ones by index; NaN is lowest. */
export function topK(scores, k) {
  const rank = (i) => (Number.isNaN(scores[i]) ? -Infinity : scores[i]);
  const missing = (i) => Number(Number.isNaN(scores[i]));
  const order = Array.from(scores, (_, i) => i);
  order.sort((a, b) => missing(a) - missing(b) || (rank(a) === rank(b) ? a - b : rank(b) > rank(a) ? 1 : -1));
  return order.slice(0, Math.max(0, k));
}

// --------------------------------------------------------------------------- audio

/**
 * ln(max(magnitude, floor)) of the short-time Fourier transform of a clip: Int16Array (as fractions of 32768) or real
 * numbers in -1..1 -> Float32Array [frames][bins]. Frames, window and bands are those of tf.signal.stft and
 * tf.signal.linear_to_mel_weight_matrix; `declared` is the card's: rate, length, frame, hop, fft, bins (null: every
 * frequency), floor.
 */
export function spectrogram(samples, declared) {
  const {rate, length, frame, hop, fft, bins, floor} = declared;
  if (!(frame >= 1 && hop >= 1 && fft >= Math.max(frame, 2) && length >= frame) || fft & (fft - 1)) {
    throw new RangeError(`frame ${frame}, hop ${hop}, fft ${fft}, length ${length} do not fit together`);
  }
  const clip = new Float64Array(length);
  const largest = samples instanceof Int16Array ? 32768 : 1;
  for (let i = 0; i < Math.min(length, samples.length); i++) clip[i] = samples[i] / largest;
  const window = Float64Array.from({length: frame}, (_, i) => 0.5 - 0.5 * Math.cos((2 * Math.PI * i) / frame));
  const bands = bins ? melBands(bins, fft / 2 + 1, rate / 2) : null;
  const [frames, width] = [1 + Math.floor((length - frame) / hop), bins || fft / 2 + 1];
  const found = new Float32Array(frames * width);
  for (let row = 0; row < frames; row++) {
    const magnitudes = magnitudesOf(clip.subarray(row * hop), window, fft);
    for (let bin = 0; bin < width; bin++) {
      const x = bands ? bands[bin].reduce((sum, weight, i) => sum + weight * magnitudes[i], 0) : magnitudes[bin];
      found[row * width + bin] = Math.log(Math.max(x, floor));
    }
  }
  return found;
}

function magnitudesOf(clip, window, fft) {
  const [real, imaginary] = [new Float64Array(fft), new Float64Array(fft)];
  for (let i = 0; i < window.length; i++) real[i] = clip[i] * window[i];
  transform(real, imaginary);
  return Float64Array.from({length: fft / 2 + 1}, (_, i) => Math.sqrt(real[i] * real[i] + imaginary[i] * imaginary[i]));
}

/** Triangles whose corners lie evenly on the mel scale from 0 to the highest frequency; frequency 0 is in none. */
function melBands(bins, frequencies, highest) {
  const mel = (hertz) => 1127 * Math.log1p(hertz / 700);
  const step = mel(highest) / (bins + 1);
  return Array.from({length: bins}, (_, bin) =>
    Float64Array.from({length: frequencies}, (_, i) => {
      const at = mel((highest * i) / (frequencies - 1)) / step - bin;
      return i === 0 ? 0 : Math.max(0, Math.min(at, 2 - at));
    }),
  );
}

/** The discrete Fourier transform of a power of two, in place: decimation in time (Cooley and Tukey 1965). */
function transform(real, imaginary) {
  const size = real.length;
  reorder(real);
  reorder(imaginary);
  for (let half = 1; half < size; half *= 2) {
    for (let i = 0; i < half; i++) {
      const angle = (Math.PI * i) / half;
      const [c, s] = [Math.cos(angle), Math.sin(angle)];
      for (let at = i; at < size; at += 2 * half) {
        const r = real[at + half] * c + imaginary[at + half] * s;
        const m = imaginary[at + half] * c - real[at + half] * s;
        real[at + half] = real[at] - r;
        imaginary[at + half] = imaginary[at] - m;
        real[at] += r;
        imaginary[at] += m;
      }
    }
  }
}

function reorder(x) {
  for (let i = 0, j = 0; i < x.length; i++) {
    if (i < j) [x[i], x[j]] = [x[j], x[i]];
    let bit = x.length >> 1;
    for (; bit > 0 && j & bit; bit >>= 1) j ^= bit;
    j |= bit;
  }
}

// --------------------------------------------------------------------------- all of it

/**
 * Raw data as the model takes it, by a card's `preprocess`: {resize, crop, colour, scale, mean, std, layout,
 * spectrogram}, in this order; what is null or left out is not done. `raw` is a picture, or an array of numbers.
 */
export function preprocess(raw, declared) {
  const {scale, layout: order} = declared;
  const [mean, std] = [declared.mean ?? [], declared.std ?? []];
  if (declared.spectrogram) {
    const {bins, fft} = declared.spectrogram;
    const channels = order ? 1 : bins || fft / 2 + 1; // with a layout it is a picture of one channel
    return normalise(spectrogram(raw, declared.spectrogram), channels, scale, mean, std);
  }
  if (!raw.bytes) {
    return normalise(raw, Math.max(1, mean.length, std.length), scale, mean, std);
  }
  let picture = declared.resize ? resized(raw, declared) : raw;
  picture = declared.crop ? crop(picture, declared.crop) : picture;
  const wanted = declared.colour ?? "RGB";
  const arithmetic = !declared.resize && !declared.crop && !order && wanted === "RGB";
  picture = arithmetic ? picture : colour(picture, wanted);
  const x = normalise(picture.bytes, picture.channels, scale, mean, std);
  return order ? layout(x, picture.channels, order) : x;
}

function resized(picture, {resize: size, fit, bars}) {
  if (fit === "letterbox") return letterbox(picture, size, bars);
  return fit === "stretch" ? resize(picture, size, size) : resizeShorterSide(picture, size);
}

// --------------------------------------------------------------------------- boxes and regions

const TRIED = 1000; // of the places where something is found, the best
const FOUND = 100; // boxes of a picture

/**
 * What a detector finds, the best first, by a card's `postprocess.detect`. `outputs`: real numbers and shape of each by
 * name. Corners x1, y1, x2, y2 and key points x, y (and how certain each is) are in pixels of the picture {height,
 * width}, which lies in the input as `at`, its placement, says; without a picture in those of the input.
 */
export function boxes(how, outputs, picture, at) {
  const read = (columns) => {
    const {numbers: values, shape} = outputs[columns.name];
    const first = columns.axis === 1 && shape.length === 3;
    const places = first ? shape[2] : shape[1];
    const channels = shape.length === 3 ? shape[first ? 1 : 2] : 1;
    const of = (place, channel) => {
      const x = Number(values[first ? channel * places + place : place * channels + channel]);
      return Number.isFinite(x) ? x : 0;
    };
    const row = (place) => Array.from({length: columns.end - columns.first}, (_, i) => of(place, columns.first + i));
    return {places, row};
  };
  const [corners, scores] = [read(how.boxes), read(how.scores)];
  const [told, marks] = [how.classes && read(how.classes), how.points && read(how.points)];
  let found = [];
  for (let place = 0; place < scores.places; place++) {
    const sure = classShares(scores.row(place), how).map(Math.fround); // what differs by a last digit is a tie
    const best = sure.reduce((most, share, i) => (share > sure[most] ? i : most), 0);
    if (!(sure[best] >= how.least)) continue;
    const index = told ? roundHalfEven(told.row(place)[0]) : best;
    const points = marks ? split(marks.row(place), how.point) : [];
    found.push({index, score: sure[best], box: asCorners(corners.row(place), how.format), points});
  }
  found = found.sort((a, b) => b.score - a.score).slice(0, TRIED); // it is stable: of equals the first
  if (!how.listed) found = distinct(found, how.overlap);
  return found.slice(0, FOUND).map((each) => ({...each, ...inPicture(each, how, picture, at)}));
}

/** How probable each class is at a place; the background is none. */
function classShares(row, {kind, background, anything}) {
  let shares = row;
  if (kind === "logits" || kind === "log-probabilities") {
    const largest = row.reduce((a, b) => Math.max(a, b));
    const powers = row.map((x) => Math.exp(x - largest));
    const sum = powers.reduce((a, b) => a + b);
    shares = powers.map((x) => x / sum);
  } else {
    if (kind === "logit") shares = row.map((x) => 1 / (1 + Math.exp(-Math.max(-700, Math.min(700, x)))));
    shares = shares.map((x) => Math.max(0, Math.min(1, x)));
  }
  if (anything) return shares.slice(1).map((x) => x * shares[0]);
  return background === null ? shares : shares.filter((_, i) => i !== background);
}

function asCorners([a, b, c, d], format) {
  if (format === "xyxy" || format === "yxyx") return [a, b, c, d];
  const [x, y] = format === "cxcywh" ? [a - c / 2, b - d / 2] : [a, b];
  return [x, y, x + c, y + d];
}

/** Numbers one behind the other as key points. */
function split(row, point) {
  return Array.from({length: row.length / point}, (_, i) => row.slice(i * point, (i + 1) * point));
}

/** Without those that overlap a better one of their class. */
function distinct(found, most) {
  const kept = [];
  for (const each of found) {
    if (!kept.some((better) => better.index === each.index && intersection(better.box, each.box) > most)) kept.push(each);
  }
  return kept;
}

/** Intersection over union of two boxes. */
function intersection(one, other) {
  const area = ([x1, y1, x2, y2]) => Math.max(0, x2 - x1) * Math.max(0, y2 - y1);
  const [low, high] = [(i) => Math.max(one[i], other[i]), (i) => Math.min(one[i], other[i])];
  const both = area([low(0), low(1), high(2), high(3)]);
  const whole = area(one) + area(other) - both;
  return both / (whole > 0 ? whole : 1);
}

/** Corners that end at the picture's sides, and points that do not. */
function inPicture({box, points}, {format, unit, size}, picture, at) {
  const [height, width] = size && unit === "shares" ? size : [1, 1];
  const placed = (one, other) => {
    const [first, second] = format === "yxyx" ? [other, one] : [one, other];
    const [x, y] = [first * width, second * height];
    return picture && at ? [(x + at.left) / at.across, (y + at.top) / at.down] : [x, y];
  };
  const whole = picture ?? (size && {height: size[0], width: size[1]});
  const within = ([x, y]) => (whole ? [Math.max(0, Math.min(whole.width, x)), Math.max(0, Math.min(whole.height, y))] : [x, y]);
  return {
    box: [...within(placed(box[0], box[1])), ...within(placed(box[2], box[3]))],
    points: points.map(([x, y, ...certain]) => [...placed(x, y), ...certain]),
  };
}

export const UNSEEN = 255; // the class of a pixel outside of what the model saw

/**
 * The class of each pixel, by a card's `postprocess.segment`, of an output's real numbers and shape: {width, height,
 * classes: Uint8Array} of the picture {height, width}, which lies in the input as `at`, its placement, says; without a
 * picture that of each cell of the output.
 */
export function segments({axis, single, size}, {numbers: values, shape}, picture, at) {
  const [height, width] = axis === 1 ? shape.slice(2) : shape.slice(1, 3);
  const cells = {width, height, classes: cellClasses(values, axis === null ? null : shape[axis], axis, single)};
  if (!picture) return cells;
  const {across, down, left, top} = at ?? {across: 1, down: 1, left: 0, top: 0};
  const rows = nearest(picture.height, down, top, height, size[0]);
  const columns = nearest(picture.width, across, left, width, size[1]);
  const classes = new Uint8Array(picture.height * picture.width);
  rows.forEach((row, y) =>
    columns.forEach((column, x) => {
      classes[y * picture.width + x] = row < 0 || column < 0 ? UNSEEN : cells.classes[row * width + column];
    }),
  );
  return {width: picture.width, height: picture.height, classes};
}

/** Of equals the first, and none above 254. */
function cellClasses(values, channels, axis, single) {
  if (channels === null) return Uint8Array.from(values, (x) => Math.max(0, Math.min(UNSEEN - 1, roundHalfEven(x))));
  if (channels === 1) return Uint8Array.from(values, (x) => Number(x > (single === "probability" ? 0.5 : 0)));
  const count = values.length / channels;
  const found = new Uint8Array(count);
  for (let cell = 0; cell < count; cell++) {
    const [begin, step] = axis === 1 ? [cell, count] : [cell * channels, 1];
    let best = 0;
    for (let i = 1; i < channels; i++) if (values[begin + i * step] > values[begin + best * step]) best = i;
    found[cell] = Math.min(UNSEEN - 1, best);
  }
  return found;
}

/** Of each pixel of an axis the cell that its middle lies in; -1: none. */
function nearest(pixels, scale, begin, cells, size) {
  return Array.from({length: pixels}, (_, i) => {
    const cell = Math.floor((((i + 0.5) * scale - begin) * cells) / size);
    return cell >= 0 && cell < cells ? cell : -1;
  });
}

/** The classes of a mask with their shares of its pixels, the largest first; what was not seen is none. */
export function shares({classes}) {
  const counts = new Array(UNSEEN + 1).fill(0);
  for (const index of classes) counts[index] += 1;
  const found = counts.slice(0, UNSEEN).map((count, index) => ({index, score: count / classes.length}));
  return found.filter(({score}) => score > 0).sort((a, b) => b.score - a.score);
}

// --------------------------------------------------------------------------- golden items

const READERS = {
  bool: [1, "getUint8", Uint8Array],
  int8: [1, "getInt8", Int8Array],
  uint8: [1, "getUint8", Uint8Array],
  int16: [2, "getInt16", Int16Array],
  uint16: [2, "getUint16", Uint16Array],
  int32: [4, "getInt32", Int32Array],
  uint32: [4, "getUint32", Uint32Array],
  int64: [8, "getBigInt64", BigInt64Array],
  uint64: [8, "getBigUint64", BigUint64Array],
  float16: [2, "getUint16", Float32Array],
  float32: [4, "getFloat32", Float32Array],
  float64: [8, "getFloat64", Float64Array],
};

/** Little-endian bytes (a Uint8Array) as an array of a card's dtype; of float16 in single precision. */
export function numbers(bytes, dtype) {
  if (!Object.hasOwn(READERS, dtype)) throw new RangeError(`no numbers of dtype ${dtype} are read here`);
  const [size, get, Kind] = READERS[dtype];
  if (bytes.length % size) throw new RangeError(`${bytes.length} bytes are no whole number of ${dtype}`);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const meant = dtype === "float16" ? half : (x) => x;
  return Kind.from({length: bytes.length / size}, (_, i) => meant(view[get](i * size, true)));
}

function half(bits) {
  const [exponent, fraction] = [(bits >> 10) & 31, bits & 1023];
  const size = exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25);
  const whole = exponent < 31 ? size : fraction === 0 ? Infinity : NaN;
  return bits >> 15 ? -whole : whole;
}

/**
 * sqrt(sum of (found - wanted)^2 / sum of wanted^2): 0 where they are equal. Infinite where the lengths differ, where a
 * number is NaN or infinite, and where all that is wanted is 0 and something else was found.
 */
export function relativeRms(wanted, found) {
  if (wanted.length !== found.length) return Infinity;
  let [error, power] = [0, 0];
  for (let i = 0; i < wanted.length; i++) {
    error += (Number(found[i]) - Number(wanted[i])) ** 2;
    power += Number(wanted[i]) ** 2;
  }
  if (error === 0) return 0;
  const ratio = Math.sqrt(error / power);
  return Number.isNaN(ratio) ? Infinity : ratio;
}

/** The largest |found - wanted|; infinite where the lengths differ or a number is NaN or infinite. */
export function largestError(wanted, found) {
  if (wanted.length !== found.length) return Infinity;
  let largest = 0;
  for (let i = 0; i < wanted.length; i++) {
    const difference = Math.abs(Number(found[i]) - Number(wanted[i]));
    if (Number.isNaN(difference)) return Infinity;
    largest = Math.max(largest, difference);
  }
  return largest;
}

/** Lower-case hexadecimal sha256 of a Uint8Array or an ArrayBuffer; only where the page is local or comes by https. */
export async function sha256(bytes) {
  const digest = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, "0")).join("");
}
