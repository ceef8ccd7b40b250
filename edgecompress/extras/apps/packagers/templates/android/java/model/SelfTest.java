package ai.edgecompress.model;

import ai.edgecompress.processing.Json;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Whether the packaged model computes here what it computed when it was packaged, step by step. */
public final class SelfTest {
    /** One step: "files", "processing", "inference", "labels", and "accelerator" of a model for one. */
    public static final class Step {
        /** Its name. */
        public final String step;
        /** Whether it passed. */
        public final boolean ok;
        /** What was found. */
        public final String detail;

        Step(String step, boolean ok, String detail) {
            this.step = step;
            this.ok = ok;
            this.detail = detail;
        }

        @Override
        public String toString() {
            return step + ": " + (ok ? "pass" : "FAIL") + ": " + detail;
        }
    }

    /** What a step does: its answer is what it found. */
    interface Trial {
        String look() throws Exception;
    }

    /** A step that did not pass. */
    static final class Wrong extends Exception {
        private static final long serialVersionUID = 1;

        Wrong(String detail) {
            super(detail);
        }
    }

    private final List<Step> steps = new ArrayList<>();

    /** Adds a step; whatever is thrown is why it did not pass. */
    void add(String step, Trial trial) {
        try {
            steps.add(new Step(step, true, trial.look()));
        } catch (Wrong wrong) {
            steps.add(new Step(step, false, wrong.getMessage()));
        } catch (Exception broken) {
            steps.add(new Step(step, false, broken.toString()));
        }
    }

    /** The steps, in their order. */
    public List<Step> steps() {
        return Collections.unmodifiableList(steps);
    }

    /** Whether all of them passed. */
    public boolean passed() {
        for (Step step : steps) {
            if (!step.ok) {
                return false;
            }
        }
        return true;
    }

    /** A JSON list of {"step", "ok", "detail"}. */
    public String json() {
        List<Object> list = new ArrayList<>();
        for (Step step : steps) {
            Map<String, Object> told = new LinkedHashMap<>();
            told.put("step", step.step);
            told.put("ok", step.ok);
            told.put("detail", step.detail);
            list.add(told);
        }
        return Json.write(list);
    }
}
