package ai.onnxruntime;

import java.nio.ByteBuffer;
import java.util.List;

public final class OrtEnvironment implements AutoCloseable {
    public static OrtEnvironment getEnvironment() {
        return null;
    }

    public OrtSession createSession(ByteBuffer modelBuffer, OrtSession.SessionOptions options) throws OrtException {
        return null;
    }

    public OrtSession createSession(String modelPath, OrtSession.SessionOptions options) throws OrtException {
        return null;
    }

    public void registerExecutionProviderLibrary(String registrationName, String libraryPath) throws OrtException {}

    public List<OrtEpDevice> getEpDevices() throws OrtException {
        return null;
    }

    @Override
    public void close() {}
}
