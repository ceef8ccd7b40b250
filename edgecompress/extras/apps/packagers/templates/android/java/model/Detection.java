package ai.edgecompress.model;

/** A thing that was found, and where: corners in pixels of the picture that was given, from its upper left corner. */
public final class Detection {
    /** The number of its class, from 0. */
    public final int index;
    /** The name of its class; the number, where the model has no names. */
    public final String label;
    /** Its probability. */
    public final float score;
    /** Its left side. */
    public final float left;
    /** Its upper side. */
    public final float top;
    /** Its right side. */
    public final float right;
    /** Its lower side. */
    public final float bottom;

    Detection(int index, String label, double score, double[] corners) {
        this.index = index;
        this.label = label;
        this.score = (float) score;
        left = (float) corners[0];
        top = (float) corners[1];
        right = (float) corners[2];
        bottom = (float) corners[3];
    }

    @Override
    public String toString() {
        return label + " " + score + " [" + left + ", " + top + ", " + right + ", " + bottom + "]";
    }
}
