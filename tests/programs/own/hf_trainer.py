import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, at):
        ids = torch.randint(0, 500, (64,), generator=torch.Generator().manual_seed(at))
        return {"input_ids": ids, "labels": ids}


model = GPT2LMHeadModel(GPT2Config(vocab_size=500, n_layer=2, n_head=2, n_embd=128, n_positions=64))
args = TrainingArguments(
    output_dir="out", per_device_train_batch_size=8, num_train_epochs=2, report_to=[]
)
trainer = Trainer(model=model, args=args, train_dataset=Texts())
trainer.train()
