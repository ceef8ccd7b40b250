"""Makes detector.safetensors: `python examples/detector/train.py` (needs torch, ten minutes on two cores).

One seed. The scenes are drawn by net.py. A deploy tells its average precision.
"""

from __future__ import annotations

import numpy as np
import torch
from net import BINS, CLASSES, SIDE, STRIDES, WEIGHTS, Net, data
from safetensors.torch import save_file
from torch.nn import functional as F

SEED, EPOCHS, BATCH, RATE = 0, 16, 32, 0.003
BORDER = 26.0  # pixels: smaller things are learned by the near grid, larger ones by the far one
REACH = 1.5  # strides from the middle of a thing, the cells that learn it


def tensors(pictures: np.ndarray) -> torch.Tensor:
    """Scenes as the net takes them: what source.toml's [preprocess] says."""
    bars = np.full((len(pictures), SIDE, SIDE, 3), 114, np.uint8)
    top = (SIDE - pictures.shape[1]) // 2
    bars[:, top : top + pictures.shape[1]] = pictures
    return torch.from_numpy(bars).permute(0, 3, 1, 2).float() / 255


def assigned(net: Net, things: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """By cell the class to learn (CLASSES: none), [n, 320], and the box, [n, 4, 320]."""
    n, places, steps = len(things), net.places, net.steps
    classes = torch.full((n, places.shape[1]), CLASSES)
    boxes = torch.zeros(n, 4, places.shape[1])
    for k in range(things.shape[1]):
        kind, box = things[:, k, 0].long(), things[:, k, 1:, None]
        middle, size = (box[:, :2] + box[:, 2:]) / 2, (box[:, 2:] - box[:, :2]).amax(1)
        own = (size < BORDER) == (steps == STRIDES[0])
        near = ((places - middle).abs() < REACH * steps).all(1)
        inside = ((places > box[:, :2]) & (places < box[:, 2:])).all(1)
        hit = (kind >= 0)[:, None] & own & near & inside
        classes = torch.where(hit, kind[:, None], classes)
        boxes = torch.where(hit[:, None], box, boxes)
    return classes, boxes


def loss_of(net: Net, images: torch.Tensor, things: torch.Tensor) -> torch.Tensor:
    """Of classes, of the overlap of boxes, and of the distribution of each distance."""
    logits, sides = net.raw(images)
    classes, boxes = assigned(net, things)
    target = F.one_hot(classes, CLASSES + 1)[..., :CLASSES].transpose(1, 2).float()
    p = logits.sigmoid()
    focal = (target - p).abs().square() * F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    hit = classes < CLASSES
    count = max(1, int(hit.sum()))
    ours = net.corners(sides).transpose(1, 2)[hit]
    wanted = boxes.transpose(1, 2)[hit]
    low, high = torch.maximum(ours[:, :2], wanted[:, :2]), torch.minimum(ours[:, 2:], wanted[:, 2:])
    both = (high - low).clamp(0).prod(1)
    areas = (ours[:, 2:] - ours[:, :2]).prod(1) + (wanted[:, 2:] - wanted[:, :2]).prod(1) - both
    around = torch.maximum(ours[:, 2:], wanted[:, 2:]) - torch.minimum(ours[:, :2], wanted[:, :2])
    overlap = both / areas - (around.prod(1) - areas) / around.prod(1)  # GIoU, Rezatofighi et al., CVPR 2019
    at = net.places.expand(len(images), 2, -1).transpose(1, 2)[hit]
    away = torch.cat([at - wanted[:, :2], wanted[:, 2:] - at], 1) / net.steps.expand(len(images), -1)[hit][:, None]
    away = away.clamp(0, BINS - 1.01)
    bins = sides.permute(0, 3, 1, 2)[hit].log_softmax(-1)  # [hits, 4, bins]
    left = away.long()
    share = away - left  # of the bin above: DFL, Li et al., NeurIPS 2020
    near, above = (bins.gather(-1, (left + i)[..., None])[..., 0] for i in (0, 1))
    spread = -(near * (1 - share) + above * share).mean(1)
    return (focal.sum() + 2 * (1 - overlap).sum() + 0.5 * spread.sum()) / count


def train(net: Net, images: torch.Tensor, things: torch.Tensor) -> None:
    """EPOCHS of AdamW on a one-cycle schedule; half of the scenes are mirrored."""
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=EPOCHS * -(-len(images) // BATCH))
    for epoch in range(EPOCHS):
        net.train()
        for index in torch.randperm(len(images)).split(BATCH):
            x, y = images[index], things[index]
            if torch.rand(()) < 0.5:
                x, turned = x.flip(3), y.clone()
                turned[..., 1], turned[..., 3] = SIDE - y[..., 3], SIDE - y[..., 1]
                y = turned
            loss = loss_of(net, x, y)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(SEED)
    torch.set_num_threads(2)
    scenes = list(data("train") or ())
    net = Net()
    train(
        net, tensors(np.stack([picture for picture, _ in scenes])), torch.from_numpy(np.stack([t for _, t in scenes]))
    )
    save_file(net.state_dict(), WEIGHTS)
