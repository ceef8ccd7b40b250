package app;

import ai.edgecompress.model.Mask;
import ai.edgecompress.model.WRAPPER;
import android.content.FolderContext;
import android.graphics.Bitmap;
import java.io.File;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** `Run COMMAND CACHE FOLDER...`: one line of what a package answers, for each folder of assets. */
public final class Run {
    private Run() {}

    public static void main(String[] arguments) throws Exception {
        for (int i = 2; i < arguments.length; i++) {
            File assets = new File(arguments[i]);
            boolean compressed = arguments[0].endsWith("compressed");
            FolderContext context = new FolderContext(assets, new File(arguments[1]), compressed);
            try (WRAPPER model = WRAPPER.load(context)) {
                System.out.println(answer(arguments[0], model));
            } catch (Exception broken) {
                System.out.println("broken: " + broken);
            }
        }
    }

    private static String answer(String command, WRAPPER model) throws Exception {
        if (command.startsWith("benchmark")) {
            return model.benchmark(25);
        }
        if (command.startsWith("run")) {
            return Arrays.deepToString(model.run(model.goldenInputs()));
        }
        if (command.startsWith("classify")) {
            Bitmap picture = (Bitmap) WRAPPER.class.getMethod("goldenPicture").invoke(model);
            Bitmap hidden = picture.copy(Bitmap.Config.HARDWARE, false);
            String plain = called(model, Bitmap.class, picture);
            String same = plain.equals(called(model, Bitmap.class, hidden)) ? "" : " differs";
            return plain + same + " " + called(model, float[].class, model.goldenInputs()[0]);
        }
        if (command.startsWith("detect")) {
            Bitmap picture = (Bitmap) WRAPPER.class.getMethod("goldenPicture").invoke(model);
            List<String> found = new ArrayList<>();
            for (int degrees = 0; degrees < 360; degrees += 90) {
                Bitmap turned = turned(picture, (360 - degrees) / 90 % 4);
                found.add(String.valueOf(
                        WRAPPER.class.getMethod("detect", Bitmap.class, int.class).invoke(model, turned, degrees)));
            }
            return String.join("; ", found);
        }
        if (command.startsWith("segment")) {
            Bitmap picture = (Bitmap) WRAPPER.class.getMethod("goldenPicture").invoke(model);
            List<String> found = new ArrayList<>();
            for (int degrees = 0; degrees < 360; degrees += 90) {
                Bitmap turned = turned(picture, (360 - degrees) / 90 % 4);
                Mask mask = (Mask)
                        WRAPPER.class.getMethod("segment", Bitmap.class, int.class).invoke(model, turned, degrees);
                found.add(mask + "|" + mask.width + "|" + mask.height + "|" + Arrays.toString(mask.classes));
            }
            return String.join("; ", found);
        }
        if (command.startsWith("settings")) {
            Map<Object, Object> asked = new TreeMap<>(System.getProperties());
            asked.keySet().removeIf(name -> !name.toString().startsWith("asked."));
            return asked.toString();
        }
        return model.selfTest().json();
    }

    /** Clockwise, by quarters. */
    private static Bitmap turned(Bitmap given, int quarters) {
        Bitmap found = given;
        for (int i = 0; i < quarters; i++) {
            int width = found.getWidth();
            int height = found.getHeight();
            int[] pixels = new int[width * height];
            int[] turned = new int[width * height];
            found.getPixels(pixels, 0, width, 0, 0, width, height);
            for (int at = 0; at < pixels.length; at++) {
                turned[at % width * height + height - 1 - at / width] = pixels[at];
            }
            found = Bitmap.createBitmap(turned, height, width, Bitmap.Config.ARGB_8888);
        }
        return found;
    }

    /** Only wrappers of classifiers have it. */
    private static String called(WRAPPER model, Class<?> type, Object given) throws Exception {
        return String.valueOf(WRAPPER.class.getMethod("classify", type).invoke(model, given));
    }
}
