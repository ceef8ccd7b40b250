package ai.edgecompress.model;

import ai.edgecompress.processing.Json;
import java.io.IOException;
import java.util.List;

/** The names of the classes. */
final class Labels {
    private final List<?> names;

    private Labels(List<?> names) {
        this.names = names;
    }

    static Labels read(ModelFiles files) throws IOException {
        return new Labels((List<?>) Json.read(new String(files.read("labels.json"), Spec.UTF_8)));
    }

    /** The name of a class; its number, where it has none. */
    String of(int index) {
        return index < names.size() ? (String) names.get(index) : Integer.toString(index);
    }
}
