package android.graphics;

public class Canvas {
    public Canvas(Bitmap bitmap) {}

    public void drawRect(float left, float top, float right, float bottom, Paint paint) {}

    public void drawCircle(float cx, float cy, float radius, Paint paint) {}
}
