"""A synthetic translation task: reverse the sentence. Batches are padded."""

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

PAD, START = 0, 1


class ReversedSentences(Dataset):
    def __init__(self, length: int, vocab_size: int, longest: int) -> None:
        generator = torch.Generator().manual_seed(0)
        lengths = torch.randint(longest // 2, longest + 1, (length,), generator=generator)
        self.sentences = [
            torch.randint(2, vocab_size, (int(n),), generator=generator) for n in lengths
        ]

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        sentence = self.sentences[index]
        return sentence, torch.cat([torch.tensor([START]), sentence.flip(0)])


def collate(pairs: list) -> tuple[Tensor, Tensor]:
    sources, targets = zip(*pairs)
    return (
        pad_sequence(list(sources), batch_first=True, padding_value=PAD),
        pad_sequence(list(targets), batch_first=True, padding_value=PAD),
    )
