package org.pytorch.executorch;

public class Module {
    public static final int LOAD_MODE_MMAP = 1;

    public static Module load(String modelPath, int loadMode, int numThreads) {
        return null;
    }

    public EValue[] forward(EValue... inputs) {
        return null;
    }

    public void destroy() {}
}
