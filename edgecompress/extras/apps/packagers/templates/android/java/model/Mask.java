package ai.edgecompress.model;

import ai.edgecompress.processing.Segments;
import ai.edgecompress.processing.TopK;

/** The class of each pixel of the picture that was given. */
public final class Mask {
    /** Of a pixel outside of what the model saw. */
    public static final int UNSEEN = Segments.UNSEEN;

    /** Pixels in a row. */
    public final int width;
    /** Rows. */
    public final int height;
    /** The numbers of the classes as unsigned bytes, row by row; UNSEEN where the model saw nothing. */
    public final byte[] classes;

    private final Labels labels;

    Mask(byte[] classes, int height, int width, Labels labels) {
        this.classes = classes;
        this.height = height;
        this.width = width;
        this.labels = labels;
    }

    /** The number of the class of a pixel, counted from the upper left corner; UNSEEN where the model saw nothing. */
    public int at(int x, int y) {
        return classes[y * width + x] & 0xff;
    }

    /** The name of a class; its number, where the model has no names. */
    public String label(int index) {
        return labels.of(index);
    }

    /** Each class that is there, with its share of the picture, the largest first. */
    @Override
    public String toString() {
        float[] shares = Segments.shares(classes);
        StringBuilder text = new StringBuilder();
        for (int index : TopK.of(shares, shares.length)) {
            if (index != UNSEEN && shares[index] > 0) {
                text.append(text.length() == 0 ? "" : ", ").append(label(index)).append(' ').append(shares[index]);
            }
        }
        return text.toString();
    }
}
