// A file that `edgecompress pack` wrote, unpacked: segments of byte planes and codebooks, through deflate.
import { sha256 } from "./files.js";

const HEADER = 40;
const MAGIC = 0x31504345; // "ECP1"
const MOST = 4 << 20; // bytes of a segment
const [PLANES, SPARSE, CODEBOOK] = [0, 1, 2];

/**
 * Throws Error for one that is damaged; never makes more bytes than it says at its begin.
 * @param {ArrayBuffer} packed
 * @param {number} bytes of the file that was packed
 * @returns {Promise<ArrayBuffer>}
 */
export async function unpacked(packed, bytes) {
  const view = new DataView(packed);
  const head = packed.byteLength >= HEADER && view.getUint32(0, true) === MAGIC;
  if (!head || view.getUint32(4, true) !== bytes) throw damaged("is not the packed file of this model");
  const given = { view, at: HEADER };
  const whole = new Uint8Array(bytes);
  let done = 0;
  while (given.at < packed.byteLength) done += await segment(given, whole.subarray(done));
  const digest = [...new Uint8Array(packed, 8, 32)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  if (done !== bytes || (await sha256(whole.buffer)) !== digest) throw damaged("is damaged");
  return whole.buffer;
}

/** Fills the begin of `out` with the bytes of the next segment; returns how many. */
async function segment(given, out) {
  const [form, width, values, count] = [number(given, 1), number(given, 1), number(given, 2), number(given, 4)];
  const sound = form <= CODEBOOK && [1, 2, 4].includes(width) && count > 0 && count <= Math.min(MOST, out.length);
  if (!sound || (form !== PLANES && count % width !== 0)) throw damaged("has a segment of no such form");
  if (form === PLANES) {
    await planes(given, out.subarray(0, count), width);
    return count;
  }
  const elements = count / width;
  const mask = await stream(given, Math.ceil(elements / 8));
  const kept = (i) => (mask[i >> 3] >> (7 - (i & 7))) & 1;
  let set = 0;
  for (let i = 0; i < elements; i++) set += kept(i);
  const dense = form === SPARSE ? await planes(given, new Uint8Array(set * width), width) : null;
  const indices = dense ? null : await stream(given, set);
  const book = dense ?? (await stream(given, values * width));
  for (let i = 0, k = 0; i < elements; i++) {
    if (!kept(i)) continue;
    const from = (indices ? indices[k] : k) * width;
    if (from >= book.length) throw damaged("has an index beyond its values");
    for (let byte = 0; byte < width; byte++) out[i * width + byte] = book[from + byte];
    k++;
  }
  return count;
}

/** Fills `out` from its byte planes. */
async function planes(given, out, width) {
  for (let plane = 0; plane < width; plane++) {
    const bytes = await stream(given, Math.ceil((out.length - plane) / width));
    bytes.forEach((byte, i) => (out[plane + i * width] = byte));
  }
  return out;
}

/** The next stream, which inflates to so many bytes. */
async function stream(given, count) {
  const length = number(given, 4);
  if (length > given.view.byteLength - given.at) throw damaged("is cut off");
  const packed = new Uint8Array(given.view.buffer, given.at, length);
  given.at += length;
  const reader = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  const out = new Uint8Array(count);
  let at = 0;
  const next = () => reader.read().catch(() => Promise.reject(damaged("has a stream that is none")));
  for (let part = await next(); !part.done; part = await next()) {
    if (at + part.value.length > count) throw damaged("has a stream of another length");
    out.set(part.value, at);
    at += part.value.length;
  }
  if (at !== count) throw damaged("has a stream of another length");
  return out;
}

function damaged(why) {
  return new Error(`the packed model ${why}; fetch the whole package again`);
}

/** The next number of so many bytes. */
function number(given, bytes) {
  if (given.at + bytes > given.view.byteLength) throw damaged("is cut off");
  const found = { 1: "getUint8", 2: "getUint16", 4: "getUint32" }[bytes];
  given.at += bytes;
  return given.view[found](given.at - bytes, true);
}
