// Words, numbers and lines on the page. Whatever a stranger wrote becomes text, never markup.
const LONGEST = 80; // characters of a label
const SHOWN = 20_000; // characters of any text

/**
 * An element with a class and children; texts become text.
 * @param {string} name
 * @param {string} style
 * @param {...(string | Node)} children
 */
export function element(name, style, ...children) {
  const made = document.createElement(name);
  if (style) made.className = style;
  made.append(...children);
  return made;
}

/** One line of a stranger's text, cut where it is long. @param {string} text */
export function brief(text) {
  const line = `${text}`.slice(0, 2 * LONGEST).replace(/\s+/g, " ");
  return line.length > LONGEST || text.length > 2 * LONGEST ? `${line.slice(0, LONGEST)}…` : line;
}

/** @param {string} text */
export function shown(text) {
  return text.length > SHOWN ? `${text.slice(0, SHOWN)}\n… ${text.length - SHOWN} more characters` : text;
}

/** Three digits: "0.123 ms", "45.6 ms", "1,230 ms". @param {number} ms */
export function milliseconds(ms) {
  return `${Number(ms.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 6 })} ms`;
}

/** @param {number} bytes */
export function sizes(bytes) {
  return bytes < 1e6 ? `${(bytes / 1e3).toPrecision(3)} KB` : `${(bytes / 1e6).toPrecision(3)} MB`;
}

/**
 * Latencies in order and their median, from the fastest at the bottom to the slowest at the top, logarithmic.
 * @param {SVGElement} svg
 * @param {number[]} values
 * @param {number} median
 */
export function plot(svg, values, median) {
  const found = buckets(values);
  const [low, high] = [Math.min(...found), Math.max(...found)].map(Math.log);
  const y = (value) => (100 - (96 * (Math.log(value) - low)) / (high - low || 1)).toFixed(2);
  const x = (i) => ((1000 * i) / Math.max(1, found.length - 1)).toFixed(2);
  const line = found.map((value, i) => `${i ? "L" : "M"}${x(i)} ${y(value)}`).join("");
  svg.setAttribute("viewBox", "0 0 1000 100");
  svg.querySelectorAll("path").forEach((old) => old.remove());
  for (const [name, d] of Object.entries({ line, median: `M0 ${y(Math.max(median, Math.min(...found)))}H1000` })) {
    const path = document.createElementNS(svg.namespaceURI, "path");
    path.setAttribute("class", name);
    path.setAttribute("d", d);
    svg.append(path);
  }
}

/** At most 1000 points: of more, the slowest of each stretch. */
function buckets(values) {
  const size = Math.ceil(values.length / 1000);
  const starts = Array.from({ length: Math.ceil(values.length / size) }, (_, i) => i * size);
  return starts.map((begin) => Math.max(...values.slice(begin, begin + size)));
}
