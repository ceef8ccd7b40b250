package ai.edgecompress.model;

import ai.edgecompress.processing.Colour;
import ai.edgecompress.processing.Image;
import android.graphics.Bitmap;

/** Between Android's pictures and ours. */
final class Pictures {
    private Pictures() {}

    /** A bitmap's pixels; `channels` 1 makes it grey. */
    static Image of(Bitmap bitmap, int channels) {
        boolean hidden = "HARDWARE".equals(String.valueOf(bitmap.getConfig())); // its pixels are not in memory
        Bitmap readable = hidden ? bitmap.copy(Bitmap.Config.ARGB_8888, false) : bitmap;
        int width = readable.getWidth();
        int height = readable.getHeight();
        int[] pixels = new int[width * height];
        readable.getPixels(pixels, 0, width, 0, 0, width, height);
        Image image = Image.ofArgb(pixels, height, width);
        return channels == 1 ? Colour.GRAY.of(image) : image;
    }

    /** A picture as a bitmap. */
    static Bitmap bitmap(Image image) {
        int[] pixels = new int[image.height * image.width];
        for (int i = 0; i < pixels.length; i++) {
            pixels[i] = 0xff000000 | at(image, i, 0) << 16 | at(image, i, 1) << 8 | at(image, i, 2);
        }
        return Bitmap.createBitmap(pixels, image.width, image.height, Bitmap.Config.ARGB_8888);
    }

    private static int at(Image image, int pixel, int channel) {
        return image.bytes[pixel * image.channels + Math.min(channel, image.channels - 1)] & 0xff;
    }
}
