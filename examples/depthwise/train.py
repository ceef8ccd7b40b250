"""Makes depthwise.safetensors as the demo's own weights are made: `python examples/depthwise/train.py`, a minute."""

from __future__ import annotations

import torch
from net import WEIGHTS, Net
from safetensors.torch import save_file

from edgecompress.demo import train as demo


def main() -> None:
    """Writes the weights, prints the accuracy on the split that trained nothing."""
    torch.manual_seed(demo.SEED)
    torch.set_num_threads(1)
    model = demo.train(Net())
    save_file(model.state_dict(), WEIGHTS)
    print(f"select: {100 * demo.accuracy(model, 'select'):.1f} %, test: {100 * demo.accuracy(model, 'test'):.1f} %")


if __name__ == "__main__":
    main()
