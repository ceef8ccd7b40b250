package ai.onnxruntime;

import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import pipe.Pipe;

/** ONNX Runtime's. */
public final class OrtEnvironment {
    public static OrtEnvironment getEnvironment() {
        return new OrtEnvironment();
    }

    public OrtSession createSession(ByteBuffer modelBuffer, OrtSession.SessionOptions options) throws OrtException {
        if (!modelBuffer.isDirect()) {
            throw new OrtException();
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
        return new OrtSession(new Pipe("onnx", modelPath));
    }
}
