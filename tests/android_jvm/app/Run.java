package app;

import ai.edgecompress.model.WRAPPER;
import android.content.FolderContext;
import android.graphics.Bitmap;
import java.io.File;

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
        if (command.startsWith("classify")) {
            Bitmap picture = model.goldenPicture();
            String plain = String.valueOf(model.classify(picture));
            Bitmap hidden = picture.copy(Bitmap.Config.HARDWARE, false);
            String input = String.valueOf(model.classify(model.goldenInputs()[0]));
            return plain + (plain.equals(String.valueOf(model.classify(hidden))) ? "" : " differs") + " " + input;
        }
        return model.selfTest().json();
    }
}
