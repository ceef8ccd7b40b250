// Pictures as the browser opens and draws them.
import { UNSEEN } from "./processing.js";

const LONGEST = 4096; // of a side: what every browser's canvas holds

/**
 * A file's picture, upright, what is transparent on white. Rejects what the browser does not open.
 * @param {Blob} file
 * @returns {Promise<ImageData>}
 */
export async function decoded(file) {
  const bitmap = await createImageBitmap(file);
  const scale = Math.min(1, LONGEST / Math.max(bitmap.width, bitmap.height));
  const [width, height] = [bitmap.width, bitmap.height].map((size) => Math.max(1, Math.round(size * scale)));
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  bitmap.close();
  return context.getImageData(0, 0, width, height);
}

/**
 * What a camera shows now.
 * @param {HTMLVideoElement} video
 * @param {HTMLCanvasElement} canvas to draw on
 * @returns {ImageData}
 */
export function frame(video, canvas) {
  const [width, height] = [video.videoWidth, video.videoHeight];
  Object.assign(canvas, { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(video, 0, 0, width, height);
  return context.getImageData(0, 0, width, height);
}

/**
 * Numbers [height, width] or [height, width, channels] as a picture.
 * @param {Uint8Array} data
 * @param {number[]} shape
 */
export function picture(data, [height, width, channels = 1]) {
  return { data, width, height, channels };
}

/**
 * The picture with its numbers brought from 0..255 to 0..largest.
 * @param {any} whole
 * @param {number} largest
 */
export function levelled({ data, width, height, channels = 4 }, largest) {
  return { data: Uint8ClampedArray.from(data, (x) => (x * largest) / 255), width, height, channels };
}

/**
 * Draws boxes and key points over what is drawn, the surest last; a class has its own colour.
 * @param {HTMLCanvasElement} canvas
 * @param {{index: number, label: string, score: number, box: number[], points: number[][]}[]} found
 */
export function marked(canvas, found) {
  const context = canvas.getContext("2d");
  const unit = Math.max(1, Math.round(Math.max(canvas.width, canvas.height) / 320));
  context.lineWidth = unit;
  context.font = `${Math.max(9, 11 * unit)}px system-ui, sans-serif`;
  context.textBaseline = "top";
  for (const { index, label, score, box, points } of [...found].reverse()) {
    const [x1, y1, x2, y2] = box;
    const text = `${label.slice(0, 40)} ${Math.round(100 * score)} %`;
    context.strokeStyle = context.fillStyle = colour(index);
    context.strokeRect(x1, y1, x2 - x1, y2 - y1);
    if (Math.min(canvas.width, canvas.height) >= 128) { // there is room for words
      const tall = Math.max(10, 13 * unit);
      const top = Math.max(0, y1 - tall);
      context.fillRect(x1, top, context.measureText(text).width + 2 * unit, tall);
      context.fillStyle = "#000";
      context.fillText(text, x1 + unit, top);
    }
    context.fillStyle = colour(index);
    context.strokeStyle = "#000";
    for (const [x, y] of points) {
      context.beginPath();
      context.arc(x, y, 2 * unit, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    }
  }
}

/**
 * Lays colours over what is drawn: those of the classes of its pixels, but for class 0 and what was not seen.
 * @param {HTMLCanvasElement} canvas
 * @param {{width: number, height: number, classes: Uint8Array}} mask
 */
export function covered(canvas, { width, height, classes }) {
  const layer = Object.assign(document.createElement("canvas"), { width, height });
  const pen = layer.getContext("2d");
  for (let at = 0, end = 0; at < classes.length; at = end) {
    for (end = at + 1; end % width && classes[end] === classes[at]; ) end++;
    if (classes[at] === 0 || classes[at] === UNSEEN) continue;
    pen.fillStyle = colour(classes[at]);
    pen.fillRect(at % width, Math.floor(at / width), end - at, 1);
  }
  const context = canvas.getContext("2d");
  context.globalAlpha = 0.5;
  context.drawImage(layer, 0, 0);
  context.globalAlpha = 1;
}

/** Of a class. @param {number} index */
export function colour(index) {
  return `hsl(${(index * 222.5) % 360} 90% 60%)`;
}

/**
 * Draws it, the number `largest` as white.
 * @param {HTMLCanvasElement} canvas
 * @param {any} shown
 * @param {number} largest
 */
export function drawn(canvas, { data, width, height, channels = 4 }, largest) {
  Object.assign(canvas, { width, height });
  canvas.classList.toggle("small", Math.max(width, height) < 128);
  const whole = new ImageData(width, height);
  const bright = largest > 0 && largest < 64 ? 255 / largest : 1;
  for (let i = 0; i < width * height; i++) {
    for (let c = 0; c < 3; c++) whole.data[4 * i + c] = data[channels * i + (channels === 1 ? 0 : c)] * bright;
    whole.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(whole, 0, 0);
}
