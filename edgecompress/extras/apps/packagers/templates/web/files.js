// The files beside the page: where they are, what they hold, and their sha256.

/** The folder of this file. */
export const BASE = new URL(".", import.meta.url);

/**
 * A file's bytes; throws Error when it is not there.
 * @param {string} path
 * @param {string | URL} [base]
 * @param {RequestCache} [cache]
 * @returns {Promise<ArrayBuffer>}
 */
export async function fetched(path, base = BASE, cache = "default") {
  const answer = await fetch(new URL(path, new URL(base, document.baseURI)), { cache });
  if (!answer.ok) throw new Error(`${path}: the server answers ${answer.status}; unpack the whole package`);
  return answer.arrayBuffer();
}

/**
 * In hexadecimal. A page that came over plain HTTP from another machine (a phone on the desk) has no `crypto.subtle`.
 * @param {ArrayBuffer} bytes
 * @returns {Promise<string>}
 */
export async function sha256(bytes) {
  const digest = globalThis.crypto?.subtle ? await crypto.subtle.digest("SHA-256", bytes) : computed(bytes).buffer;
  return [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

const PRIMES = primes(64);
const K = Uint32Array.from(PRIMES, (p) => fraction(Math.cbrt(p)));
const START = Uint32Array.from(PRIMES.slice(0, 8), (p) => fraction(Math.sqrt(p)));

/**
 * FIPS 180-4, for want of `crypto.subtle`.
 * @param {ArrayBuffer} bytes
 * @returns {Uint8Array}
 */
export function computed(bytes) {
  const blocks = Math.ceil((bytes.byteLength + 9) / 64);
  const whole = Math.floor(bytes.byteLength / 64);
  const tail = new Uint8Array((blocks - whole) * 64);
  tail.set(new Uint8Array(bytes, whole * 64));
  tail[bytes.byteLength - whole * 64] = 0x80;
  const end = new DataView(tail.buffer);
  end.setUint32(tail.length - 8, Math.floor(bytes.byteLength / 2 ** 29));
  end.setUint32(tail.length - 4, (bytes.byteLength * 8) >>> 0);
  const state = START.slice();
  const words = new Uint32Array(64);
  const all = new DataView(bytes);
  for (let i = 0; i < whole; i++) mix(state, words, all, i * 64);
  for (let i = 0; i < tail.length; i += 64) mix(state, words, end, i);
  const digest = new DataView(new ArrayBuffer(32));
  state.forEach((word, i) => digest.setUint32(4 * i, word));
  return new Uint8Array(digest.buffer);
}

function mix(state, words, view, at) {
  for (let i = 0; i < 16; i++) words[i] = view.getUint32(at + 4 * i);
  for (let i = 16; i < 64; i++) {
    const [a, b] = [words[i - 15], words[i - 2]];
    const low = turned(a, 7) ^ turned(a, 18) ^ (a >>> 3);
    const high = turned(b, 17) ^ turned(b, 19) ^ (b >>> 10);
    words[i] = words[i - 16] + low + words[i - 7] + high;
  }
  let [a, b, c, d, e, f, g, h] = state;
  for (let i = 0; i < 64; i++) {
    const first = (h + (turned(e, 6) ^ turned(e, 11) ^ turned(e, 25)) + ((e & f) ^ (~e & g)) + K[i] + words[i]) | 0;
    const second = ((turned(a, 2) ^ turned(a, 13) ^ turned(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    [h, g, f, e, d, c, b, a] = [g, f, e, (d + first) | 0, c, b, a, (first + second) | 0];
  }
  [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i] += value));
}

function turned(word, by) {
  return (word >>> by) | (word << (32 - by));
}

function fraction(number) {
  return (number - Math.floor(number)) * 2 ** 32;
}

function primes(count) {
  const found = [];
  for (let n = 2; found.length < count; n++) if (found.every((p) => n % p)) found.push(n);
  return found;
}
