package org.pytorch.executorch;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import pipe.Pipe;

/** ExecuTorch's. */
public class Module {
    private final Pipe pipe;

    private Module(Pipe pipe) {
        this.pipe = pipe;
    }

    public static Module load(String modelPath, int loadMode, int numThreads) {
        return new Module(new Pipe("executorch", modelPath));
    }

    public EValue[] forward(EValue... inputs) {
        List<Pipe.Item> given = new ArrayList<>();
        for (EValue input : inputs) {
            given.add(input.tensor.item);
        }
        try {
            List<Pipe.Item> answers = pipe.run(given);
            EValue[] found = new EValue[answers.size()];
            for (int i = 0; i < found.length; i++) {
                found[i] = EValue.from(new Tensor(answers.get(i)));
            }
            return found;
        } catch (IOException broken) {
            throw new IllegalStateException(broken);
        }
    }

    public void destroy() {
        pipe.close();
    }
}
