"""Train an encoder of transformers to predict masked words."""

import argparse

import torch
import transformers
from torch.utils.data import DataLoader, Dataset

SMALL = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
MODELS = {
    "bert": ("BertConfig", "BertForMaskedLM", SMALL | {"intermediate_size": 256}),
    "roberta": (
        "RobertaConfig",
        "RobertaForMaskedLM",
        SMALL | {"intermediate_size": 256, "max_position_embeddings": 140},
    ),
    "electra": (
        "ElectraConfig",
        "ElectraForMaskedLM",
        SMALL | {"intermediate_size": 256, "embedding_size": 64},
    ),
    "albert": (
        "AlbertConfig",
        "AlbertForMaskedLM",
        SMALL | {"intermediate_size": 256, "embedding_size": 64},
    ),
    "distilbert": (
        "DistilBertConfig",
        "DistilBertForMaskedLM",
        {"vocab_size": 1000, "dim": 128, "n_layers": 2, "n_heads": 4, "hidden_dim": 256},
    ),
}
PADDING, MASK, IGNORED = 1, 4, -100


class Sentences(Dataset):
    """Sentences of 100 to 128 words, some of which are masked."""

    def __init__(self, count: int) -> None:
        lengths = torch.randint(100, 129, (count,)).tolist()
        self.sentences = [torch.randint(5, 1000, (length,)) for length in lengths]

    def __len__(self) -> int:
        return len(self.sentences)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.sentences[index]


def collate(sentences: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    words = torch.nn.utils.rnn.pad_sequence(sentences, batch_first=True, padding_value=PADDING)
    is_word = words != PADDING
    masked = (torch.rand(words.shape) < 0.15) & is_word
    return {
        "input_ids": words.masked_fill(masked, MASK),
        "attention_mask": is_word.long(),
        "labels": words.masked_fill(~masked, IGNORED),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=MODELS, default="bert")
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config, model, sizes = MODELS[args.model]
    model = getattr(transformers, model)(getattr(transformers, config)(**sizes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Sentences(160), batch_size=8, shuffle=True, collate_fn=collate)
    model.train()
    for epoch in range(2):
        for step, batch in enumerate(loader):
            batch = {name: values.to(device) for name, values in batch.items()}
            loss = model(**batch).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if step % 10 == 0:
                print(f"epoch {epoch}, step {step}: loss {loss.item():.3f}")


if __name__ == "__main__":
    main()
