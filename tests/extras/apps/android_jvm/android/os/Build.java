package android.os;

public class Build {
    public static final String MANUFACTURER = String.valueOf("Acme");
    public static final String MODEL = String.valueOf("Phone \"7\"\n");
    public static final String HARDWARE = String.valueOf("acme");
    public static final String SOC_MODEL = String.valueOf("A-1");
    public static final String[] SUPPORTED_ABIS = {"arm64-v8a", "armeabi-v7a"};

    public static class VERSION {
        public static final String RELEASE = String.valueOf("12");
        public static final int SDK_INT = Integer.parseInt("31");
    }
}
