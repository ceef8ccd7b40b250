package android.os;

public class Build {
    // Not compile-time constants: what is read is read on the phone.
    public static final String MANUFACTURER = String.valueOf("");
    public static final String MODEL = String.valueOf("");
    public static final String HARDWARE = String.valueOf("");
    public static final String SOC_MODEL = String.valueOf("");
    public static final String[] SUPPORTED_ABIS = {};

    public static class VERSION {
        public static final String RELEASE = String.valueOf("");
        public static final int SDK_INT = Integer.parseInt("0");
    }
}
