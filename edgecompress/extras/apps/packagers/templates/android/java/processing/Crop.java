package ai.edgecompress.processing;

/** Cutting the centre out of a picture. */
public final class Crop {
    private Crop() {}

    /** The square of `size` pixels about the centre. Throws IllegalArgumentException where the picture is smaller. */
    public static Image centre(Image image, int size) {
        if (size < 1 || size > Math.min(image.height, image.width)) {
            throw new IllegalArgumentException(
                    "crop " + size + " of a picture of " + image.width + " x " + image.height + "; resize it first");
        }
        int top = (int) Math.rint((image.height - size) / 2.0);
        int left = (int) Math.rint((image.width - size) / 2.0);
        int row = size * image.channels;
        byte[] bytes = new byte[size * row];
        for (int y = 0; y < size; y++) {
            System.arraycopy(image.bytes, ((top + y) * image.width + left) * image.channels, bytes, y * row, row);
        }
        return new Image(bytes, size, size, image.channels);
    }
}
