"""Makes digits.keras: `python examples/keras/train.py` (needs tensorflow-cpu, a minute on one core).

One seed, one thread. The test split is used once, after training, to print the accuracy.
"""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from edgecompress.demo import net as digits

FILE = Path(__file__).with_name("digits.keras")
EPOCHS, BATCH, RATE = 60, 32, 3e-3


def arrays(split: str) -> tuple[np.ndarray, np.ndarray]:
    """A split as the net takes it: what source.toml's [preprocess] says."""
    images, labels = zip(*digits.data(split) or (), strict=True)
    return (np.stack(images)[..., None] / 16).astype(np.float32), np.array(labels)


def build() -> keras.Model:
    """float32 [n, 8, 8, 1] in 0..1 -> probabilities [n, 10]; a shortcut, a depthwise convolution, batch norms."""
    layers = keras.layers
    image = keras.Input((8, 8, 1), name="image")
    x = layers.Conv2D(24, 3, padding="same", use_bias=False)(image)
    stem = layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x))
    x = layers.DepthwiseConv2D(3, padding="same", use_bias=False)(stem)
    x = layers.Conv2D(24, 1, use_bias=False)(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x)))
    x = layers.ReLU()(layers.Add()([layers.BatchNormalization(momentum=0.9)(x), stem]))
    x = layers.Conv2D(48, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.GlobalAveragePooling2D()(layers.ReLU()(layers.BatchNormalization(momentum=0.9)(x)))
    return keras.Model(image, {"probabilities": layers.Dense(10, activation="softmax")(x)})


if __name__ == "__main__":
    tf.config.threading.set_intra_op_parallelism_threads(1)
    keras.utils.set_random_seed(0)
    net, steps = build(), EPOCHS * -(-len(arrays("train")[0]) // BATCH)
    net.compile(
        keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(RATE, steps)), "sparse_categorical_crossentropy"
    )
    net.fit(*arrays("train"), epochs=EPOCHS, batch_size=BATCH, verbose=0)
    x, y = arrays("test")
    print(f"{(np.asarray(net(x)['probabilities']).argmax(1) == y).sum()} of {len(y)} right")
    bare = build()  # without the optimizer
    bare.set_weights(net.get_weights())
    bare.save(FILE)
