"""Ultralytics, as far as YOLO(...).train(): the boxes of a batch are put end to end."""

import torch


class Boxes(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, at):
        boxes = 20 + at % 40
        return {
            "bboxes": torch.rand(boxes, 4),
            "cls": torch.zeros(boxes, 1),
            "img": torch.rand(3, 64, 64),
        }


def collate(samples):
    merged = {name: [sample[name] for sample in samples] for name in samples[0]}
    merged = {
        name: torch.stack(all) if name == "img" else torch.cat(all) for name, all in merged.items()
    }
    counts = [len(sample["bboxes"]) for sample in samples]
    merged["batch_idx"] = torch.repeat_interleave(torch.arange(len(samples)), torch.tensor(counts))
    return merged


class Repeat:
    """Repeats the batches of a sampler for ever."""

    def __init__(self, sampler):
        self.sampler = sampler

    def __iter__(self):
        while True:
            yield from iter(self.sampler)


class InfiniteDataLoader(torch.utils.data.DataLoader):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        object.__setattr__(self, "batch_sampler", Repeat(self.batch_sampler))
        self.iterator = super().__iter__()

    def __len__(self):
        return len(self.batch_sampler.sampler)

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class DetectionTrainer:
    def __init__(self, net, batch, epochs):
        self.net = net
        self.epochs = epochs
        self.loader = InfiniteDataLoader(
            Boxes(), batch_size=batch, shuffle=True, collate_fn=collate
        )
        self.optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9)

    def train(self):
        for _ in range(self.epochs):
            for batch in self.loader:
                self.optimizer.zero_grad()
                found = self.net(batch["img"]).mean(dim=(2, 3))[batch["batch_idx"]]
                loss = (found - batch["bboxes"]).square().mean()
                loss.backward()
                self.optimizer.step()


class YOLO:
    def __init__(self, model):
        conv, relu = torch.nn.Conv2d, torch.nn.ReLU
        self.net = torch.nn.Sequential(
            conv(3, 16, 3, 2), relu(), conv(16, 32, 3, 2), relu(), conv(32, 4, 1)
        )

    def train(self, data, epochs=1, batch=16):
        DetectionTrainer(self.net, batch, epochs).train()
