package ai.edgecompress.processing;

import java.util.List;
import java.util.Map;

/** JSON (RFC 8259) out of maps, lists, arrays of long, text, numbers, booleans and null. */
public final class Json {
    private static final int DEEPEST = 64;

    private Json() {}

    /** The text of a value, keys in their order. Throws IllegalArgumentException for what JSON cannot say, as NaN. */
    public static String write(Object value) {
        StringBuilder text = new StringBuilder();
        append(text, value, 0);
        return text.toString();
    }

    /** A text as Map, List, String, Long (whole numbers), Double, Boolean or null. Throws IllegalArgumentException. */
    public static Object read(String text) {
        return new JsonReader(text).document();
    }

    private static void append(StringBuilder text, Object value, int depth) {
        if (depth > DEEPEST) {
            throw new IllegalArgumentException("nested deeper than " + DEEPEST);
        }
        if (value == null || value instanceof Boolean) {
            text.append(value);
        } else if (value instanceof CharSequence) {
            quote(text, value.toString());
        } else if (value instanceof Number) {
            number(text, (Number) value);
        } else if (value instanceof Map) {
            object(text, (Map<?, ?>) value, depth);
        } else if (value instanceof List) {
            array(text, (List<?>) value, depth);
        } else if (value instanceof long[]) {
            longs(text, (long[]) value);
        } else {
            throw new IllegalArgumentException("JSON has no " + value.getClass().getName());
        }
    }

    private static void number(StringBuilder text, Number value) {
        double real = value.doubleValue();
        if (Double.isNaN(real) || Double.isInfinite(real)) {
            throw new IllegalArgumentException("JSON has no " + real);
        }
        text.append(value);
    }

    private static void object(StringBuilder text, Map<?, ?> map, int depth) {
        String before = "{";
        for (Map.Entry<?, ?> entry : map.entrySet()) {
            if (!(entry.getKey() instanceof String)) {
                throw new IllegalArgumentException("a key of JSON is text, not " + entry.getKey());
            }
            text.append(before);
            quote(text, (String) entry.getKey());
            text.append(':');
            append(text, entry.getValue(), depth + 1);
            before = ",";
        }
        text.append(map.isEmpty() ? "{}" : "}");
    }

    private static void array(StringBuilder text, List<?> list, int depth) {
        String before = "[";
        for (Object item : list) {
            text.append(before);
            append(text, item, depth + 1);
            before = ",";
        }
        text.append(list.isEmpty() ? "[]" : "]");
    }

    private static void longs(StringBuilder text, long[] numbers) {
        text.append('[');
        for (int i = 0; i < numbers.length; i++) {
            text.append(i == 0 ? "" : ",").append(numbers[i]);
        }
        text.append(']');
    }

    /** Printable ASCII as it is, all else escaped: it may then stand in any file. */
    private static void quote(StringBuilder text, String value) {
        text.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                text.append('\\').append(c);
            } else if (c >= ' ' && c < 127) {
                text.append(c);
            } else {
                text.append("\\u");
                for (int shift = 12; shift >= 0; shift -= 4) {
                    text.append(Character.forDigit(c >> shift & 15, 16));
                }
            }
        }
        text.append('"');
    }
}
