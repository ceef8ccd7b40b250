package ai.edgecompress.processing;

/** A picture of 8-bit numbers: [height][width][channels], row by row, the channels of a pixel side by side. */
public final class Image {
    /** Rows. */
    public final int height;
    /** Pixels in a row. */
    public final int width;
    /** 1 (grey) or 3 (red, green, blue). */
    public final int channels;
    /** The numbers 0 to 255 as unsigned bytes: height * width * channels of them. */
    public final byte[] bytes;

    /** A picture over `bytes`, which are not copied. Throws IllegalArgumentException when the sizes do not fit. */
    public Image(byte[] bytes, int height, int width, int channels) {
        if (height < 1 || width < 1 || (channels != 1 && channels != 3)) {
            throw new IllegalArgumentException(
                    "a picture has 1 or 3 channels and a size; not " + height + " x " + width + " x " + channels);
        }
        if (bytes.length != (long) height * width * channels) {
            throw new IllegalArgumentException(
                    height + " x " + width + " x " + channels + " numbers wanted, " + bytes.length + " given");
        }
        this.bytes = bytes;
        this.height = height;
        this.width = width;
        this.channels = channels;
    }

    /** Out of 0xAARRGGBB numbers, as Bitmap.getPixels gives them; what is transparent is not blended. */
    public static Image ofArgb(int[] argb, int height, int width) {
        if (argb.length != (long) height * width) {
            throw new IllegalArgumentException(height + " x " + width + " pixels wanted, " + argb.length + " given");
        }
        byte[] bytes = new byte[argb.length * 3];
        for (int i = 0; i < argb.length; i++) {
            bytes[3 * i] = (byte) (argb[i] >> 16);
            bytes[3 * i + 1] = (byte) (argb[i] >> 8);
            bytes[3 * i + 2] = (byte) argb[i];
        }
        return new Image(bytes, height, width, 3);
    }

    /** Its numbers, 0 to 255, in the order of `bytes`. */
    public float[] floats() {
        float[] numbers = new float[bytes.length];
        for (int i = 0; i < bytes.length; i++) {
            numbers[i] = bytes[i] & 0xff;
        }
        return numbers;
    }
}
