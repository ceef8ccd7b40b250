package ai.edgecompress.processing;

/**
 * Bilinear resizing with antialiasing, to the bit as Pillow computes it: each output pixel is a weighted mean of the
 * input pixels under a triangle, as wide as the scale where a picture shrinks; the weights are whole numbers of
 * 1 / 2^22; rows first, then columns, rounded to 8 bits after each.
 */
public final class Resize {
    private static final int BITS = 32 - 8 - 2;
    private static final int HALF = 1 << (BITS - 1);

    private Resize() {}

    /**
     * "shorter": the shorter side as long as `size`, the longer one in proportion, rounded down; "stretch": both sides;
     * "letterbox": the longer side, in the middle of a square between bars of the grey `bars`.
     */
    public static Image fitted(Image image, int size, String fit, int bars) {
        int[] found = size(image.height, image.width, size, fit);
        Image inside = to(image, found[0], found[1]);
        if (!fit.equals("letterbox")) {
            return inside;
        }
        byte[] bytes = new byte[size * size * image.channels];
        java.util.Arrays.fill(bytes, (byte) bars);
        int row = inside.width * image.channels;
        int top = (size - inside.height) / 2;
        int left = (size - inside.width) / 2;
        for (int y = 0; y < inside.height; y++) {
            System.arraycopy(inside.bytes, y * row, bytes, ((top + y) * size + left) * image.channels, row);
        }
        return new Image(bytes, size, size, image.channels);
    }

    /** {height, width} that a picture is resized to. */
    static int[] size(int height, int width, int size, String fit) {
        if (size < 1) {
            throw new IllegalArgumentException("a side is at least 1 pixel, not " + size);
        }
        if (fit.equals("stretch")) {
            return new int[] {size, size};
        }
        if (fit.equals("letterbox")) {
            long longer = Math.max(height, width);
            int tall = (int) Math.max(1, (2L * size * height + longer) / (2 * longer));
            int wide = (int) Math.max(1, (2L * size * width + longer) / (2 * longer));
            return new int[] {tall, wide};
        }
        double shorter = Math.min(height, width);
        int tall = (int) ((double) ((long) size * height) / shorter);
        int wide = (int) ((double) ((long) size * width) / shorter);
        return new int[] {tall, wide};
    }

    /** To exactly this size, whatever becomes of the proportions. */
    public static Image to(Image image, int height, int width) {
        Image wide = width == image.width ? image : rows(image, new Weights(image.width, width));
        return height == image.height ? wide : columns(wide, new Weights(image.height, height));
    }

    private static Image rows(Image image, Weights weights) {
        int width = weights.first.length;
        int step = image.channels;
        byte[] found = new byte[image.height * width * step];
        for (int y = 0; y < image.height; y++) {
            for (int x = 0; x < width; x++) {
                for (int c = 0; c < step; c++) {
                    int begin = (y * image.width + weights.first[x]) * step + c;
                    found[(y * width + x) * step + c] = mean(image.bytes, begin, step, weights.of[x]);
                }
            }
        }
        return new Image(found, image.height, width, step);
    }

    private static Image columns(Image image, Weights weights) {
        int height = weights.first.length;
        int step = image.width * image.channels;
        byte[] found = new byte[height * step];
        for (int y = 0; y < height; y++) {
            for (int i = 0; i < step; i++) {
                found[y * step + i] = mean(image.bytes, weights.first[y] * step + i, step, weights.of[y]);
            }
        }
        return new Image(found, height, image.width, image.channels);
    }

    private static byte mean(byte[] bytes, int begin, int step, int[] weights) {
        int sum = HALF;
        int at = begin;
        for (int weight : weights) {
            sum += (bytes[at] & 0xff) * weight;
            at += step;
        }
        return (byte) Math.max(0, Math.min(255, sum >> BITS));
    }

    /** For each output pixel of one axis: the first input pixel that counts, and the weights of it and those after. */
    private static final class Weights {
        final int[] first;
        final int[][] of;

        Weights(int from, int to) {
            first = new int[to];
            of = new int[to][];
            double scale = (double) (float) from / to;
            double reach = Math.max(scale, 1.0);
            for (int i = 0; i < to; i++) {
                double centre = (i + 0.5) * scale;
                first[i] = Math.max(0, (int) (centre - reach + 0.5));
                int end = Math.min(from, (int) (centre + reach + 0.5));
                of[i] = whole(triangle(first[i], end, centre, reach));
            }
        }

        private static double[] triangle(int begin, int end, double centre, double reach) {
            double[] heights = new double[end - begin];
            double sum = 0;
            double inverse = 1.0 / reach;
            for (int i = 0; i < heights.length; i++) {
                heights[i] = Math.max(0.0, 1.0 - Math.abs((i + begin - centre + 0.5) * inverse));
                sum += heights[i];
            }
            for (int i = 0; i < heights.length; i++) {
                heights[i] = sum == 0 ? heights[i] : heights[i] / sum;
            }
            return heights;
        }

        private static int[] whole(double[] shares) {
            int[] weights = new int[shares.length];
            for (int i = 0; i < shares.length; i++) {
                weights[i] = (int) (0.5 + shares[i] * (1 << BITS));
            }
            return weights;
        }
    }
}
