// Between the bytes of a card's tensors and the typed arrays that the runtime takes.
import { quantize } from "./processing.js";

/**
 * By numpy's name, which is ONNX Runtime's too. float16 is held as its bits.
 * @type {Record<string, any>}
 */
const ARRAYS = {
  bool: Uint8Array,
  float16: Uint16Array,
  float32: Float32Array,
  float64: Float64Array,
  int8: Int8Array,
  int16: Int16Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint8: Uint8Array,
};

/**
 * Little-endian bytes as numbers. Every machine that browsers run on is little-endian.
 * @param {ArrayBuffer} bytes
 * @param {string} dtype
 */
export function array(bytes, dtype) {
  return new ARRAYS[dtype](bytes);
}

/**
 * A tensor of the runtime; throws Error when the numbers are not those of the spec.
 * @param {any} ort
 * @param {{name: string, shape: number[], dtype: string}} spec
 * @param {any} values
 */
export function tensor(ort, spec, values) {
  const count = spec.shape.reduce((product, size) => product * size, 1);
  if (!values) throw new Error(`input ${spec.name}: not given`);
  if (values.length !== count) throw new Error(`input ${spec.name}: ${count} numbers wanted, ${values.length} given`);
  const held = values instanceof ARRAYS[spec.dtype] ? values : ARRAYS[spec.dtype].from(values);
  return new ort.Tensor(spec.dtype, held, spec.shape);
}

/**
 * Real numbers as an input holds them.
 * @param {Float32Array} values
 * @param {any} spec
 */
export function quantized(values, { dtype, quantization }) {
  if (quantization) return quantize(values, quantization.scale[0], quantization.zero_point[0], dtype);
  return dtype === "float32" ? values : ARRAYS[dtype].from(values);
}

/**
 * What an output's numbers mean: as real numbers, float16 and quantized ones too.
 * @param {any} values
 * @param {any} spec
 * @returns {Float64Array}
 */
export function real(values, { dtype, quantization }) {
  const plain = numbers(values, dtype);
  if (!quantization || quantization.scale.length !== 1) return plain;
  return plain.map((x) => (x - quantization.zero_point[0]) * quantization.scale[0]);
}

/**
 * @param {any} values
 * @param {string} dtype
 * @returns {Float64Array}
 */
export function numbers(values, dtype) {
  return Float64Array.from(values, dtype === "float16" && values instanceof Uint16Array ? half : Number);
}

function half(bits) {
  const [sign, exponent, rest] = [bits >> 15 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return rest ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + rest / 1024) : 2 ** -14 * (rest / 1024));
}
