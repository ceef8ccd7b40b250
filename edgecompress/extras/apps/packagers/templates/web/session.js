// The options of a session of ONNX Runtime Web, from the settings that the model was verified with.

const LEVELS = {
  ORT_DISABLE_ALL: "disabled",
  ORT_ENABLE_BASIC: "basic",
  ORT_ENABLE_EXTENDED: "extended",
  ORT_ENABLE_ALL: "all",
};

/**
 * @param {Record<string, string | boolean | number>} settings by ONNX Runtime's own names
 * @returns {object} what `InferenceSession.create` takes
 */
export function options({ graph_optimization_level: level, execution_mode: mode, enable_cpu_mem_arena: arena, ...entries }) {
  return {
    executionProviders: ["wasm"],
    graphOptimizationLevel: LEVELS[level] ?? "all",
    executionMode: mode === "ORT_PARALLEL" ? "parallel" : "sequential",
    enableCpuMemArena: arena ?? true,
    extra: entries,
  };
}
