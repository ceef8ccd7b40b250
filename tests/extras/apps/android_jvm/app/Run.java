package app;

import ai.edgecompress.model.WRAPPER;
import android.content.FolderContext;
import android.graphics.Bitmap;
import java.io.File;
import java.util.Arrays;
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
        if (command.startsWith("settings")) {
            Map<Object, Object> asked = new TreeMap<>(System.getProperties());
            asked.keySet().removeIf(name -> !name.toString().startsWith("asked."));
            return asked.toString();
        }
        return model.selfTest().json();
    }

    /** Only wrappers of classifiers have it. */
    private static String called(WRAPPER model, Class<?> type, Object given) throws Exception {
        return String.valueOf(WRAPPER.class.getMethod("classify", type).invoke(model, given));
    }
}
