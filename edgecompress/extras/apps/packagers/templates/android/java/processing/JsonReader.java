package ai.edgecompress.processing;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Reads strict JSON (RFC 8259): no comments, no trailing commas, no key twice, nothing nested deeper than 64. */
final class JsonReader {
    private static final int DEEPEST = 64;
    private static final Pattern NUMBER = Pattern.compile("-?(?:0|[1-9][0-9]*+)(\\.[0-9]++)?([eE][+-]?[0-9]++)?");

    private final String text;
    private int at;

    JsonReader(String text) {
        this.text = text;
    }

    Object document() {
        Object value = value(0);
        if (peek() != 0 || at < text.length()) {
            throw wrong("the end");
        }
        return value;
    }

    private Object value(int depth) {
        if (depth > DEEPEST) {
            throw wrong("nothing nested deeper than " + DEEPEST);
        }
        switch (peek()) {
            case '{':
                return object(depth);
            case '[':
                return array(depth);
            case '"':
                return string();
            case 't':
                return word("true", true);
            case 'f':
                return word("false", false);
            case 'n':
                return word("null", null);
            default:
                return number();
        }
    }

    private Map<String, Object> object(int depth) {
        Map<String, Object> found = new LinkedHashMap<>();
        take('{');
        while (peek() != '}') {
            if (!found.isEmpty()) {
                take(',');
            }
            String key = string();
            take(':');
            Object value = value(depth + 1);
            if (found.containsKey(key)) {
                throw wrong("a key that is not twice there");
            }
            found.put(key, value);
        }
        take('}');
        return found;
    }

    private List<Object> array(int depth) {
        List<Object> found = new ArrayList<>();
        take('[');
        while (peek() != ']') {
            if (!found.isEmpty()) {
                take(',');
            }
            found.add(value(depth + 1));
        }
        take(']');
        return found;
    }

    private String string() {
        take('"');
        StringBuilder found = new StringBuilder();
        while (at < text.length() && text.charAt(at) != '"') {
            char c = text.charAt(at++);
            if (c < ' ') {
                at--;
                throw wrong("text without control characters");
            }
            found.append(c == '\\' ? escaped() : c);
        }
        if (at == text.length()) {
            throw wrong("the end of a text");
        }
        at++;
        return found.toString();
    }

    private char escaped() {
        char c = at < text.length() ? text.charAt(at++) : 0;
        int plain = "\"\\/bfnrt".indexOf(c);
        if (c == 0 || (plain < 0 && c != 'u')) {
            throw wrong("an escape");
        }
        return c == 'u' ? unicode() : "\"\\/\b\f\n\r\t".charAt(plain);
    }

    private char unicode() {
        int code = 0;
        for (int i = 0; i < 4; i++, at++) {
            char c = at < text.length() ? text.charAt(at) : 0;
            int digit = c < 128 ? Character.digit(c, 16) : -1;
            if (digit < 0) {
                throw wrong("four hexadecimal digits");
            }
            code = 16 * code + digit;
        }
        return (char) code;
    }

    private Object number() {
        Matcher matcher = NUMBER.matcher(text).region(at, text.length());
        if (!matcher.lookingAt()) {
            throw wrong("a value");
        }
        at = matcher.end();
        if (matcher.group(1) == null && matcher.group(2) == null && matcher.group().length() < 19) {
            return Long.valueOf(matcher.group());
        }
        return Double.valueOf(matcher.group());
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) {
            throw wrong("a value");
        }
        at += word.length();
        return value;
    }

    private void take(char wanted) {
        if (peek() != wanted) {
            throw wrong("'" + wanted + "'");
        }
        at++;
    }

    /** The next character that is no white space; 0 at the end. */
    private char peek() {
        while (at < text.length() && " \t\n\r".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        return at < text.length() ? text.charAt(at) : 0;
    }

    private IllegalArgumentException wrong(String wanted) {
        return new IllegalArgumentException("not JSON: " + wanted + " expected at character " + at);
    }
}
