"""Writes the tiny synthetic data that the gallery's programs read, in the formats they expect.

`python data.py NAME [ARGUMENT...]` writes below the current folder. Everything comes from a fixed
seed and needs the standard library only (`torch` where a program loads a tensor).
"""

from __future__ import annotations

import datetime
import gzip
import json
import pickle
import random
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

WORDS = [
    *("the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog", "while", "seven"),
    *("wizards", "measure", "their", "step", "under", "old", "stars"),
]
MAKERS: dict[str, Callable[..., None]] = {}


def maker(make: Callable[..., None]) -> Callable[..., None]:
    MAKERS[make.__name__.replace("_", "-")] = make
    return make


def prose(length: int) -> str:
    chosen = random.Random(0)
    # minGPT completes these words.
    lines = ["O God, O God!\n"]
    size = len(lines[0])
    while size < length:
        line = " ".join(chosen.choice(WORDS) for _ in range(9)).capitalize() + ".\n"
        lines.append(line)
        size += len(line)
    return "".join(lines)[:length]


def write(path: str | Path, content: str | bytes) -> None:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def png(
    width: int, height: int, pixel: Callable[[int, int], Sequence[int]], channels: int = 3
) -> bytes:
    """A PNG of 8 bits a channel: 1 channel is grey, 3 are RGB."""
    rows = bytearray()
    for y in range(height):
        rows.append(0)
        for x in range(width):
            rows.extend(pixel(x, y))

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(rows)))
        + chunk(b"IEND", b"")
    )


def colours(seed: int) -> Callable[[int, int], Sequence[int]]:
    return lambda x, y: ((x * 3 + seed * 40) % 256, (y * 5 + seed * 70) % 256, (x + y + seed) % 256)


@maker
def text(path: str, length: str = "200000") -> None:
    write(path, prose(int(length)))


@maker
def mnist(root: str, train: str = "4096", test: str = "1024", name: str = "MNIST") -> None:
    """torchvision's MNIST, or one like it, as its download would leave it."""
    chosen = random.Random(0)
    for part, count in (("train", int(train)), ("t10k", int(test))):
        images = struct.pack(">IIII", 2051, count, 28, 28) + chosen.randbytes(count * 28 * 28)
        labels = struct.pack(">II", 2049, count) + bytes(i % 10 for i in range(count))
        write(f"{root}/{name}/raw/{part}-images-idx3-ubyte", images)
        write(f"{root}/{name}/raw/{part}-labels-idx1-ubyte", labels)


@maker
def nanogpt_characters(folder: str) -> None:
    """What nanoGPT's data/shakespeare_char/prepare.py writes."""
    letters = prose(120_000)
    alphabet = sorted(set(letters))
    number = {letter: i for i, letter in enumerate(alphabet)}
    tokens = [number[letter] for letter in letters]
    cut = len(tokens) * 9 // 10
    for name, part in (("train", tokens[:cut]), ("val", tokens[cut:])):
        write(f"{folder}/{name}.bin", struct.pack(f"<{len(part)}H", *part))
    meta = {"vocab_size": len(alphabet), "itos": dict(enumerate(alphabet)), "stoi": number}
    write(f"{folder}/meta.pkl", pickle.dumps(meta))


@maker
def tiny_stories(folder: str) -> None:
    """Writes the pretokenized shards that llama2.c reads. Token 1 begins each story."""
    chosen = random.Random(0)
    for shard in range(3):
        tokens = [1 if i % 200 == 0 else chosen.randrange(3, 32000) for i in range(60_000)]
        write(f"{folder}/data{shard:02}.bin", struct.pack(f"<{len(tokens)}H", *tokens))


@maker
def enwik8(path: str) -> None:
    """95 MB of prose that compress to little, as the programs cut at 90 MB."""
    part = prose(1_000_000).encode()
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(target, "wb", compresslevel=1) as out:
        for _ in range(96):
            out.write(part)


@maker
def sine_waves(path: str) -> None:
    import torch

    waves = torch.sin(torch.arange(200.0) / 20 + torch.rand(20, 1) * 6).double().numpy()
    torch.save(waves, path)


@maker
def cora(folder: str) -> None:
    """The node features of Cora, for the citations which its repositories hold."""
    chosen = random.Random(0)
    edges = [line.split() for line in Path(folder, "cora.cites").read_text().splitlines()]
    nodes = sorted({node for edge in edges for node in edge})
    kinds = (
        "Case_Based",
        "Genetic_Algorithms",
        "Neural_Networks",
        "Probabilistic_Methods",
        "Theory",
    )
    rows = []
    for node in nodes:
        features = ["0"] * 1433
        for at in chosen.sample(range(1433), 18):
            features[at] = "1"
        rows.append("\t".join([node, *features, chosen.choice(kinds)]))
    write(Path(folder, "cora.content"), "\n".join(rows) + "\n")


@maker
def image_folder(root: str, classes: str = "2", count: str = "24", size: str = "64") -> None:
    """torchvision's ImageFolder."""
    for kind in range(int(classes)):
        for i in range(int(count)):
            write(
                f"{root}/class_{kind}/{i:03}.png", png(int(size), int(size), colours(kind * 50 + i))
            )


@maker
def flat_images(folder: str, count: str = "24", size: str = "64", suffix: str = "") -> None:
    for i in range(int(count)):
        write(f"{folder}/{i:03}{suffix}.png", png(int(size), int(size), colours(i)))


@maker
def carvana(root: str) -> None:
    """Images and masks for Pytorch-UNet."""
    for i in range(24):
        write(f"{root}/imgs/{i:03}.png", png(96, 64, colours(i)))
        write(f"{root}/masks/{i:03}.png", png(96, 64, lambda x, y: ((x > 30 and y > 20) * 1,), 1))


@maker
def coco(root: str, images: str = "8") -> None:
    """COCO's folders and annotations, with two boxes an image."""
    for split in ("train2017", "val2017"):
        pictures, boxes = [], []
        for i in range(1, int(images) + 1):
            name = f"{i:012}.png"
            write(f"{root}/{split}/{name}", png(160, 128, colours(i)))
            pictures.append({"id": i, "file_name": name, "width": 160, "height": 128})
            for n in range(2):
                x, y, w, h = 10 + 30 * n, 12 + 20 * n, 50, 40
                corners = [x, y, x + w, y, x + w, y + h, x, y + h]
                boxes.append(
                    {
                        "id": 10 * i + n,
                        "image_id": i,
                        "category_id": 1 + n,
                        "bbox": [x, y, w, h],
                        "area": w * h,
                    }
                    | {"iscrowd": 0, "segmentation": [corners]}
                )
        kinds = [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]
        annotations = {"images": pictures, "annotations": boxes, "categories": kinds}
        write(f"{root}/annotations/instances_{split}.json", json.dumps(annotations))


@maker
def yolo(root: str, description: str) -> None:
    """Writes a data set in Ultralytics' format, and its YAML file."""
    for split in ("train", "val"):
        for i in range(64):
            write(f"{root}/images/{split}/{i:03}.png", png(64, 64, colours(i)))
            write(f"{root}/labels/{split}/{i:03}.txt", "0 0.5 0.5 0.4 0.4\n1 0.3 0.3 0.2 0.2\n")
    where = Path(root).resolve()
    write(
        description,
        f"path: {where}\ntrain: images/train\nval: images/val\nnames:\n  0: one\n  1: two\n",
    )


@maker
def cora_files(folder: str) -> None:
    """The whole of Cora, citations included."""
    chosen = random.Random(0)
    write(
        Path(folder, "cora.cites"),
        "".join(f"{i}\t{chosen.randrange(i)}\n" for i in range(1, 500) for _ in range(3)),
    )
    cora(folder)


@maker
def csv_gz(path: str) -> None:
    csv(path)
    plain = Path(path).read_bytes()
    write(path, gzip.compress(plain))


@maker
def word_lists(folder: str) -> None:
    """train.txt, valid.txt and test.txt, as word language models read them."""
    for name, length in (("train", 60_000), ("valid", 12_000), ("test", 12_000)):
        write(f"{folder}/{name}.txt", prose(length))


@maker
def csv(path: str, rows: str = "759", columns: str = "9") -> None:
    """Numbers in columns, the last one 0 or 1."""
    chosen = random.Random(0)
    lines = []
    for _ in range(int(rows)):
        values = [f"{chosen.uniform(-1, 1):.4f}" for _ in range(int(columns) - 1)]
        lines.append(",".join([*values, str(chosen.randrange(2))]))
    write(path, "\n".join(lines) + "\n")


@maker
def pairs(path: str) -> None:
    """Users and the items they chose, one pair a line."""
    chosen = random.Random(0)
    lines = [f"{user} {chosen.randrange(1, 300)}" for user in range(1, 400) for _ in range(20)]
    write(path, "\n".join(lines) + "\n")


@maker
def hourly(path: str) -> None:
    """Seven series by the hour, as the programs for long forecasts read them."""
    chosen = random.Random(0)
    first = datetime.datetime(2016, 7, 1)
    lines = ["date,HUFL,HULL,MUFL,MULL,LUFL,LULL,OT"]
    for hour in range(17_420):
        values = ",".join(f"{chosen.uniform(-10, 40):.3f}" for _ in range(7))
        lines.append(f"{first + datetime.timedelta(hours=hour)},{values}")
    write(path, "\n".join(lines) + "\n")


if __name__ == "__main__":
    MAKERS[sys.argv[1]](*sys.argv[2:])
