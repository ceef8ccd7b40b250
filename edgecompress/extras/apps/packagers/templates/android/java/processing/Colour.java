package ai.edgecompress.processing;

/** The order of the channels that a model takes. */
public enum Colour {
    /** Red, green, blue: as pictures come. */
    RGB(3),
    /** Blue, green, red. */
    BGR(3),
    /** Lightness, ITU-R 601-2, in 1/65536. */
    GRAY(1);

    private final int channels;

    Colour(int channels) {
        this.channels = channels;
    }

    /** A picture in RGB or grey, in this order. Throws IllegalArgumentException when colour is asked of a grey one. */
    public Image of(Image image) {
        if (image.channels == channels) {
            return this == BGR ? reversed(image) : image;
        }
        if (this != GRAY) {
            throw new IllegalArgumentException("the picture is grey, the model takes " + this);
        }
        return grey(image);
    }

    private static Image reversed(Image image) {
        byte[] bytes = new byte[image.bytes.length];
        for (int i = 0; i < bytes.length; i += 3) {
            bytes[i] = image.bytes[i + 2];
            bytes[i + 1] = image.bytes[i + 1];
            bytes[i + 2] = image.bytes[i];
        }
        return new Image(bytes, image.height, image.width, 3);
    }

    private static Image grey(Image image) {
        byte[] bytes = new byte[image.height * image.width];
        for (int i = 0; i < bytes.length; i++) {
            int red = image.bytes[3 * i] & 0xff;
            int green = image.bytes[3 * i + 1] & 0xff;
            int blue = image.bytes[3 * i + 2] & 0xff;
            bytes[i] = (byte) ((19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16);
        }
        return new Image(bytes, image.height, image.width, 1);
    }
}
