"""Files that are often given as a model and are none: what to do about each."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core.errors import InputError

WEIGHTS = (".pth", ".pt", ".ckpt", ".bin", ".safetensors")
ADVICE = {
    **dict.fromkeys(
        WEIGHTS, "weights only: write a factory that makes the net and loads them, and give it as MODEL, nets:build"
    ),
    ".pb": "a graph of TensorFlow: write a SavedModel with tf.saved_model.save(net, 'saved'), and give the folder "
    "saved; of TensorFlow 1, run python -m tf2onnx.convert --graphdef {name} --inputs x:0 --outputs y:0 --output "
    "net.onnx, and give net.onnx",
    **dict.fromkeys(
        (".pkl", ".pickle", ".joblib"),
        "a pickle, which runs code when it is read: write a factory that makes the net, and give it as MODEL, "
        "nets:build; of scikit-learn, export it with skl2onnx",
    ),
    **dict.fromkeys(
        (".xml", ".mlmodel", ".mlpackage", ".pte", ".mnn", ".engine", ".trt"),
        "made for one engine, so it is no source: give the net that it was made from",
    ),
    ".py": "code: give the name of the module and of a factory in it as MODEL, {stem}:build",
}
SNIPPET = """nets.py:
    import {package}, my_package  # my_package: where the class of the net is
    def build():
        net = my_package.Net()
        net.load_state_dict({load})
        return net"""


def refused(path: Path) -> InputError | None:
    """The error for such a file; for weights with a factory's code as a note. None for any other file."""
    if path.name == "saved_model.pb":
        return InputError(f"{path}: is a part of a SavedModel: give its folder as MODEL, {path.parent}")
    if path.suffix not in ADVICE:
        return None
    error = InputError(f"{path}: {ADVICE[path.suffix].format(name=path.name, stem=path.stem)}")
    if path.suffix in WEIGHTS:
        file = repr(str(path))
        package, load = "torch", f"torch.load({file}, map_location='cpu', weights_only=True)"
        if path.suffix == ".safetensors":
            package, load = "safetensors.torch", f"safetensors.torch.load_file({file})"
        error.add_note(SNIPPET.format(package=package, load=load))
    return error
