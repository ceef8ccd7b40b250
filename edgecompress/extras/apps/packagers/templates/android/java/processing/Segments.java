package ai.edgecompress.processing;

/** The class of each pixel, read out of an output as a card's `postprocess.segment` says. */
public final class Segments {
    /** Of a pixel outside of what the model saw. */
    public static final int UNSEEN = 255;

    private final int axis;
    private final String single;
    private final int[] size;

    /**
     * `axis` of the classes: 1, 3, or 0 where the output holds their numbers. `single`: what the one channel is,
     * "probability" or "logit"; "" where there are several. Height and width are those of the input.
     */
    public Segments(int axis, String single, int height, int width) {
        this.axis = axis;
        this.single = single;
        size = new int[] {height, width};
    }

    /**
     * The class of each pixel, row by row, as unsigned bytes. `picture` is {height, width} of the picture that became
     * the input by `declared`; null: the class of each cell of the output.
     */
    public byte[] of(float[] output, int[] shape, int[] picture, Preprocess declared) {
        byte[] cells = cells(output, shape);
        if (picture == null) {
            return cells;
        }
        int[] plane = plane(shape);
        Preprocess.Placement at = declared.placement(picture[0], picture[1]);
        int[] rows = nearest(picture[0], at.down, at.top, plane[0], size[0]);
        int[] columns = nearest(picture[1], at.across, at.left, plane[1], size[1]);
        byte[] found = new byte[rows.length * columns.length];
        for (int y = 0; y < rows.length; y++) {
            for (int x = 0; x < columns.length; x++) {
                boolean seen = rows[y] >= 0 && columns[x] >= 0;
                found[y * columns.length + x] = seen ? cells[rows[y] * plane[1] + columns[x]] : (byte) UNSEEN;
            }
        }
        return found;
    }

    /** How many rows and columns of cells an output has. */
    public int[] plane(int[] shape) {
        int first = axis == 1 ? 2 : 1;
        return new int[] {shape[first], shape[first + 1]};
    }

    /** How much of all pixels each class has, by its number; the last number is of those that were not seen. */
    public static float[] shares(byte[] classes) {
        int[] counts = new int[UNSEEN + 1];
        for (byte index : classes) {
            counts[index & 0xff]++;
        }
        float[] found = new float[counts.length];
        for (int i = 0; i < found.length; i++) {
            found[i] = (float) ((double) counts[i] / classes.length);
        }
        return found;
    }

    /** The first of equals, and none above 254. */
    private byte[] cells(float[] output, int[] shape) {
        int channels = axis == 0 ? 1 : shape[axis];
        int count = output.length / channels;
        byte[] found = new byte[count];
        for (int cell = 0; cell < count; cell++) {
            double chosen;
            if (axis == 0) {
                chosen = Float.isNaN(output[cell]) ? 0 : Math.rint(output[cell]);
            } else if (channels == 1) {
                chosen = output[cell] > (single.equals("probability") ? 0.5 : 0) ? 1 : 0;
            } else {
                chosen = best(output, axis == 1 ? cell : cell * channels, axis == 1 ? count : 1, channels);
            }
            found[cell] = (byte) (int) Math.max(0, Math.min(UNSEEN - 1, chosen));
        }
        return found;
    }

    private static int best(float[] output, int begin, int step, int channels) {
        int best = 0;
        for (int i = 1; i < channels; i++) {
            best = output[begin + i * step] > output[begin + best * step] ? i : best;
        }
        return best;
    }

    /** Of each pixel of an axis the cell that its middle lies in; -1: none. */
    private static int[] nearest(int pixels, double scale, int begin, int cells, int size) {
        int[] found = new int[pixels];
        for (int i = 0; i < pixels; i++) {
            double cell = Math.floor(((i + 0.5) * scale - begin) * cells / size);
            found[i] = cell >= 0 && cell < cells ? (int) cell : -1;
        }
        return found;
    }
}
