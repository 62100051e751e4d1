"""Train a small Whisper to transcribe speech."""

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import WhisperConfig, WhisperForConditionalGeneration


class Recordings(Dataset):
    """Spectrograms of two seconds, and the spoken words."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        spectrum = torch.randn(80, 200, generator=generator)
        return spectrum, torch.randint(5, 500, (20,), generator=generator)


def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = WhisperConfig(
        vocab_size=500,
        d_model=96,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=192,
        decoder_ffn_dim=192,
        max_source_positions=100,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    loader = DataLoader(Recordings(), batch_size=4, shuffle=True, drop_last=True)
    model.train()
    for epoch in range(2):
        for spectra, words in loader:
            output = model(input_features=spectra.to(device), labels=words.to(device))
            optimizer.zero_grad()
            output.loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {output.loss.item():.3f}")


if __name__ == "__main__":
    main()
