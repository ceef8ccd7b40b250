package ai.edgecompress.model;

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.pytorch.executorch.EValue;
import org.pytorch.executorch.Module;

/** ExecuTorch. It opens paths alone: the program is unpacked into the cache folder once, and mapped from there. */
final class ExecuTorchEngine implements Engine {
    private final Module module;
    private final Spec spec;

    private ExecuTorchEngine(Module module, Spec spec) {
        this.module = module;
        this.spec = spec;
    }

    static Engine open(ModelFiles files, Spec spec, int threads) throws IOException {
        String path = new File(files.unpacked(), spec.main).getPath();
        try {
            return new ExecuTorchEngine(Module.load(path, Module.LOAD_MODE_MMAP, threads), spec);
        } catch (RuntimeException refused) {
            throw new IOException(spec.main + ": ExecuTorch refuses it", refused);
        }
    }

    @Override
    public ByteBuffer[] run(ByteBuffer[] inputs) throws IOException {
        EValue[] given = new EValue[inputs.length];
        for (int i = 0; i < given.length; i++) {
            given[i] = EValue.from(tensor(spec.inputs.get(i), inputs[i]));
        }
        EValue[] found = forward(given);
        if (found.length != spec.outputs.size()) {
            throw new IOException("ExecuTorch answered " + found.length + " of " + spec.outputs.size() + " outputs");
        }
        ByteBuffer[] answers = new ByteBuffer[found.length];
        for (int i = 0; i < answers.length; i++) {
            answers[i] = answer(spec.outputs.get(i), found[i].toTensor());
        }
        return answers;
    }

    private EValue[] forward(EValue[] given) throws IOException {
        try {
            return module.forward(given);
        } catch (RuntimeException refused) {
            throw new IOException("ExecuTorch refuses to run", refused);
        }
    }

    private static org.pytorch.executorch.Tensor tensor(Tensor input, ByteBuffer stored) {
        ByteBuffer data = stored.duplicate().order(ByteOrder.nativeOrder());
        switch (input.dtype) {
            case "int8":
                return org.pytorch.executorch.Tensor.fromBlob(data, input.shape);
            case "uint8":
                return org.pytorch.executorch.Tensor.fromBlobUnsigned(data, input.shape);
            case "int32":
                return org.pytorch.executorch.Tensor.fromBlob(data.asIntBuffer(), input.shape);
            case "int64":
                return org.pytorch.executorch.Tensor.fromBlob(data.asLongBuffer(), input.shape);
            case "float64":
                return org.pytorch.executorch.Tensor.fromBlob(data.asDoubleBuffer(), input.shape);
            default:
                return org.pytorch.executorch.Tensor.fromBlob(data.asFloatBuffer(), input.shape);
        }
    }

    private static ByteBuffer answer(Tensor output, org.pytorch.executorch.Tensor found) throws IOException {
        if (found.numel() != output.size()) {
            throw new IOException("'" + output.name + "' has " + output.size() + " numbers, " + found.numel() + " came");
        }
        ByteBuffer answer = output.buffer();
        switch (output.dtype) {
            case "int8":
                answer.put(found.getDataAsByteArray());
                break;
            case "uint8":
                answer.put(found.getDataAsUnsignedByteArray());
                break;
            case "int32":
                answer.asIntBuffer().put(found.getDataAsIntArray());
                break;
            case "int64":
                answer.asLongBuffer().put(found.getDataAsLongArray());
                break;
            case "float64":
                answer.asDoubleBuffer().put(found.getDataAsDoubleArray());
                break;
            default:
                answer.asFloatBuffer().put(found.getDataAsFloatArray());
        }
        answer.rewind();
        return answer;
    }

    @Override
    public void close() {
        module.destroy();
    }
}
