package ai.edgecompress.model;

import java.util.Arrays;

/** A thing that was found, and where: in pixels of the picture that was given, from its upper left corner. */
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
    /** Its key points: of each x, y, and of some models how certain it is; none, where the model tells none. */
    public final float[][] points;

    Detection(int index, String label, double score, double[] corners, double[][] points) {
        this.index = index;
        this.label = label;
        this.score = (float) score;
        left = (float) corners[0];
        top = (float) corners[1];
        right = (float) corners[2];
        bottom = (float) corners[3];
        this.points = new float[points.length][];
        for (int i = 0; i < points.length; i++) {
            this.points[i] = new float[points[i].length];
            for (int j = 0; j < points[i].length; j++) {
                this.points[i][j] = (float) points[i][j];
            }
        }
    }

    @Override
    public String toString() {
        String marks = points.length == 0 ? "" : " " + Arrays.deepToString(points);
        return label + " " + score + " [" + left + ", " + top + ", " + right + ", " + bottom + "]" + marks;
    }
}
