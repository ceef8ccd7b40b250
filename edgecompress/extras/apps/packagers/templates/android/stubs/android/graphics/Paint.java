package android.graphics;

public class Paint {
    public enum Style {
        FILL,
        STROKE,
        FILL_AND_STROKE
    }

    public void setColor(int color) {}

    public void setStyle(Style style) {}
}
