package ai.edgecompress.processing;

/** Turning pictures by quarters of a circle: cameras give theirs as the sensor lies. */
public final class Turn {
    private Turn() {}

    /** Quarter turns of a number of degrees, 0 to 3. Throws IllegalArgumentException for others than those of 90. */
    public static int quarters(int degrees) {
        if (degrees % 90 != 0) {
            throw new IllegalArgumentException("a picture is turned by 0, 90, 180 or 270 degrees, not " + degrees);
        }
        return (degrees / 90 % 4 + 4) % 4;
    }

    /** The picture, turned clockwise. */
    public static Image of(Image image, int quarters) {
        Image found = image;
        for (int i = 0; i < quarters; i++) {
            found = clockwise(found);
        }
        return found;
    }

    private static Image clockwise(Image image) {
        int step = image.channels;
        byte[] bytes = new byte[image.bytes.length];
        for (int y = 0; y < image.height; y++) {
            for (int x = 0; x < image.width; x++) {
                int to = (x * image.height + image.height - 1 - y) * step;
                System.arraycopy(image.bytes, (y * image.width + x) * step, bytes, to, step);
            }
        }
        return new Image(bytes, image.width, image.height, step);
    }

    /** Corners in a turned picture as corners in the picture itself, of that height and width. */
    public static double[] back(double[] corners, int quarters, int height, int width) {
        double[] one = back(corners[0], corners[1], quarters, height, width);
        double[] other = back(corners[2], corners[3], quarters, height, width);
        return new double[] {
            Math.min(one[0], other[0]), Math.min(one[1], other[1]), Math.max(one[0], other[0]), Math.max(one[1], other[1])
        };
    }

    /** The same of a place. */
    public static double[] back(double x, double y, int quarters, int height, int width) {
        switch (quarters) {
            case 1:
                return new double[] {y, height - x};
            case 2:
                return new double[] {width - x, height - y};
            case 3:
                return new double[] {width - y, x};
            default:
                return new double[] {x, y};
        }
    }
}
