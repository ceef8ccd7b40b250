package ai.edgecompress.model;

import android.os.Build;
import java.util.LinkedHashMap;
import java.util.Map;

/** What a phone tells of itself. */
final class Device {
    private static final int NAMES_ITS_CHIP = 31; // Android 12

    private Device() {}

    /** As the key "device" of a measurement. */
    static Map<String, Object> told() {
        Map<String, Object> told = new LinkedHashMap<>();
        told.put("name", (Build.MANUFACTURER + " " + Build.MODEL).trim());
        told.put("platform", "android-" + processor());
        told.put("os", "Android " + Build.VERSION.RELEASE);
        told.put("cpu", Build.VERSION.SDK_INT >= NAMES_ITS_CHIP ? Build.SOC_MODEL : Build.HARDWARE);
        told.put("cores", Runtime.getRuntime().availableProcessors());
        told.put("browser", null);
        return told;
    }

    private static String processor() {
        String first = Build.SUPPORTED_ABIS.length == 0 ? "" : Build.SUPPORTED_ABIS[0];
        switch (first) {
            case "arm64-v8a":
                return "arm64";
            case "armeabi-v7a":
            case "armeabi":
                return "arm";
            case "x86_64":
            case "x86":
            case "riscv64":
                return first;
            default:
                return "unknown";
        }
    }
}
