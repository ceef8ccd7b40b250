package ai.edgecompress.model;

/** A class and how sure the model is of it. */
public final class Prediction {
    /** The number of the class, from 0. */
    public final int index;
    /** Its name; its number, where the model has no names. */
    public final String label;
    /** Its probability. */
    public final float score;

    Prediction(int index, String label, float score) {
        this.index = index;
        this.label = label;
        this.score = score;
    }

    @Override
    public String toString() {
        return label + " " + score;
    }
}
