package ai.edgecompress.model;

import ai.edgecompress.processing.Json;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.text.SimpleDateFormat;
import java.util.Date;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.TimeZone;

/** Times inferences one by one, and tells it as "edgecompress/measured/1", which `edgecompress report` reads. */
final class Benchmark {
    static final int FEWEST = 20;
    static final int WARMUP = 10;
    private static final int READINGS = 1000;

    private final Spec spec;
    private final Engine engine;
    private final int threads;

    Benchmark(Spec spec, Engine engine, int threads) {
        this.spec = spec;
        this.engine = engine;
        this.threads = threads;
    }

    /** `inferences` of them (at least 20) on these inputs, after 10 that are not timed. */
    String run(ByteBuffer[] inputs, int inferences, boolean passed) throws IOException {
        if (engine.left() != null) {
            throw new IOException("it runs on the CPU, and says nothing of the accelerator: " + engine.left());
        }
        String started = now();
        for (int i = 0; i < WARMUP; i++) {
            engine.run(inputs);
        }
        long[] latencies = new long[Math.max(FEWEST, inferences)];
        for (int i = 0; i < latencies.length; i++) {
            long before = System.nanoTime();
            engine.run(inputs);
            latencies[i] = System.nanoTime() - before;
        }
        return Json.write(told(latencies, started, passed));
    }

    private Map<String, Object> told(long[] latencies, String started, boolean passed) {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("schema", "edgecompress/measured/1");
        told.put("model", pair("name", spec.facts.get("name"), "sha256", spec.digest()));
        Map<String, Object> runtime = Facts.table(spec.facts.get("runtime"));
        told.put("runtime", pair("name", runtime.get("name"), "version", runtime.get("version")));
        told.put("device", Device.told());
        Map<String, Object> run = pair("threads", threads, "batch", 1);
        run.put("warmup", WARMUP);
        run.put("started", started);
        told.put("run", run);
        told.put("self_test", passed ? "pass" : "fail");
        told.put("latencies_ns", latencies);
        told.put("clock", "System.nanoTime");
        told.put("clock_step_ns", step());
        return told;
    }

    private static Map<String, Object> pair(String a, Object first, String b, Object second) {
        Map<String, Object> pair = new LinkedHashMap<>();
        pair.put(a, first);
        pair.put(b, second);
        return pair;
    }

    private static String now() {
        SimpleDateFormat format = new SimpleDateFormat("yyyy-MM-dd'T'HH:mm:ss'Z'", Locale.ROOT);
        format.setTimeZone(TimeZone.getTimeZone("UTC"));
        return format.format(new Date());
    }

    /** The smallest step that the clock was seen to take. */
    private static long step() {
        long smallest = Long.MAX_VALUE;
        for (int i = 0; i < READINGS; i++) {
            long before = System.nanoTime();
            long after = System.nanoTime();
            while (after == before) {
                after = System.nanoTime();
            }
            smallest = Math.min(smallest, after - before);
        }
        return smallest;
    }
}
