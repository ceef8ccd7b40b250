package ai.onnxruntime;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Collections;
import java.util.List;
import pipe.Pipe;

/** ONNX Runtime's. */
public final class OrtEnvironment {
    public static OrtEnvironment getEnvironment() {
        return new OrtEnvironment();
    }

    public void registerExecutionProviderLibrary(String registrationName, String libraryPath) throws OrtException {
        if (System.getProperty("phone.npu") == null) {
            throw new UnsatisfiedLinkError(libraryPath + " not found");
        }
    }

    public List<OrtEpDevice> getEpDevices() throws OrtException {
        return Boolean.getBoolean("phone.npu") ? Collections.singletonList(new OrtEpDevice()) : Collections.emptyList();
    }

    public OrtSession createSession(ByteBuffer modelBuffer, OrtSession.SessionOptions options) throws OrtException {
        if (!modelBuffer.isDirect()) {
            throw new OrtException("not direct");
        }
        try {
            File file = File.createTempFile("model", ".onnx");
            file.deleteOnExit();
            try (FileOutputStream out = new FileOutputStream(file)) {
                out.write(Pipe.bytes(modelBuffer));
            }
            return createSession(file.getPath(), options);
        } catch (IOException broken) {
            throw new IllegalStateException(broken);
        }
    }

    public OrtSession createSession(String modelPath, OrtSession.SessionOptions options) throws OrtException {
        return new OrtSession(new Pipe(options.npu ? "qnn" : "onnx", modelPath));
    }
}
