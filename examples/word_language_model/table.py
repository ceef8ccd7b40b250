"""The perplexities of the variants of deploys, each beside the first one's on the same words, with 95 % intervals.

    python examples/word_language_model/table.py dist/x86 dist/narrow

An interval is over the items of the split `test`, windows of 35 words of one text: a ratio's over their differences.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from edgecompress.data import metrics

Z = 1.96  # standard errors of a 95 % interval


def main() -> None:
    """A row for each variant."""
    perplexity = metrics.find("perplexity")
    assert perplexity is not None
    first = None
    print(f"{'variant':<34} {'perplexity':<22} {'ratio to the first':<24} {'ms':>7} {'bytes':>11}")
    for folder in sys.argv[1:]:
        report = json.loads((Path(folder) / "report.json").read_text(encoding="utf-8"))
        for variant in report["variants"]:
            nats = metrics.of_items(variant["verify"]["scores"])
            first = nats if first is None else first
            error = Z * nats.std(ddof=1) / np.sqrt(len(nats))
            own = (np.exp(nats.mean() + part) for part in (0, -error, error))
            change = metrics.compare(perplexity, first, nats)
            beside = f"{change['ratio']:.3f} [{change['low']:.3f}, {change['high']:.3f}]"
            numbers = variant["numbers"]
            print(
                f"{Path(folder).name + '@' + variant['name']:<34} {'{:.2f} [{:.2f}, {:.2f}]'.format(*own):<22} "
                f"{beside:<24} {numbers['latency']['value']:>7.3f} {int(numbers['size']['value']):>11,}"
            )


if __name__ == "__main__":
    main()
