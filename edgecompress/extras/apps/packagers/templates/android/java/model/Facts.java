package ai.edgecompress.model;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** Reads what JSON became. */
final class Facts {
    private Facts() {}

    /** A table, or null where there is none. */
    @SuppressWarnings("unchecked")
    static Map<String, Object> table(Object value) {
        return (Map<String, Object>) value;
    }

    /** A list of tables. */
    static List<Map<String, Object>> tables(Object value) {
        List<Map<String, Object>> found = new ArrayList<>();
        for (Object item : (List<?>) value) {
            found.add(table(item));
        }
        return found;
    }

    /** A list of numbers. */
    static List<Number> numbers(Object value) {
        List<Number> found = new ArrayList<>();
        for (Object item : (List<?>) value) {
            found.add((Number) item);
        }
        return found;
    }

    /** Numbers of double precision. */
    static double[] doubles(Object value) {
        List<Number> numbers = numbers(value);
        double[] found = new double[numbers.size()];
        for (int i = 0; i < found.length; i++) {
            found[i] = numbers.get(i).doubleValue();
        }
        return found;
    }

    /** A whole number, or 0 where there is none. */
    static int whole(Object value) {
        return value == null ? 0 : ((Number) value).intValue();
    }
}
