package android.graphics;

public class Color {
    public static int HSVToColor(float[] hsv) {
        return 0;
    }
}
