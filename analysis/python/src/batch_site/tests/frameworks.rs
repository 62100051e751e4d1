//! Trainers and loaders of other libraries.

use super::*;

#[test]
fn transformers() {
    let text = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(\n    output_dir='out',\n    per_device_train_batch_size=16,\n    per_device_eval_batch_size=64,\n)\ntrainer = Trainer(model=model, args=args, train_dataset=ds)\ntrainer.train()\n";
    check_script(text, "train.py:4 16");
    let named = text.replace("=16", "=BS").replace("args =", "BS = 16\nargs =");
    check_script(&named, "train.py:2 16");
    check_refused(
        "args = TrainingArguments(output_dir='out')\nTrainer(model=m, args=args).train()\n",
        "library default",
    );
}

#[test]
fn lightning() {
    let module = "import lightning as L
class Digits(L.LightningDataModule):
    def __init__(self, root='.', batch_size: int = 64):
        super().__init__()
        self.batch_size = batch_size
    def train_dataloader(self):
        return DataLoader(self.train, batch_size=self.batch_size)
    def val_dataloader(self):
        return DataLoader(self.val, batch_size=self.batch_size)
";
    check_script(
        &format!("{module}trainer = L.Trainer()\ntrainer.fit(Net(), datamodule=Digits())\n"),
        "train.py:3 64",
    );
    check_script(
        &format!(
            "{module}dm = Digits(batch_size=128)\ntrainer = L.Trainer()\ntrainer.fit(Net(), dm)\n"
        ),
        "train.py:10 128",
    );
    let hparams = module
        .replace("self.batch_size = batch_size", "self.save_hyperparameters()")
        .replace("=self.batch_size", "=self.hparams.batch_size");
    check_script(&format!("{hparams}L.Trainer().fit(Net(), Digits())\n"), "train.py:3 64");
    check_script(
        "import lightning as L\nloader = DataLoader(ds, batch_size=10)\ntrainer = L.Trainer(max_epochs=1)\ntrainer.fit(model, loader)\n",
        "train.py:2 10",
    );
}

#[test]
fn accelerate_and_fabric() {
    check_script(
        "loader = DataLoader(ds, batch_size=10)\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nfor x in loader:\n    accelerator.backward(model(x))\n    optimizer.step()\n",
        "train.py:1 10",
    );
    check_script(
        "loader = DataLoader(ds, batch_size=10)\nloader = fabric.setup_dataloaders(loader)\nfor x in loader:\n    fabric.backward(model(x))\n",
        "train.py:1 10",
    );
}

#[test]
fn timm() {
    let text = "import argparse
from timm.data import create_loader
parser = argparse.ArgumentParser()
group = parser.add_argument_group('Dataset parameters')
group.add_argument('-b', '--batch-size', type=int, default=128, metavar='N',
                   help='Input batch size for training (default: 128)')
group.add_argument('-vb', '--validation-batch-size', type=int, default=None, metavar='N')

def _parse_args():
    args_config, remaining = config_parser.parse_known_args()
    args = parser.parse_args(remaining)
    return args, 1

def main():
    args, args_text = _parse_args()
    loader_train = create_loader(
        dataset_train,
        input_size=3,
        batch_size=args.batch_size,
        is_training=True,
    )
    loader_eval = create_loader(dataset_eval, batch_size=args.validation_batch_size or args.batch_size)
    for epoch in range(9):
        train_one_epoch(epoch, model, loader_train, optimizer)

def train_one_epoch(epoch, model, loader, optimizer):
    for batch_idx, (input, target) in enumerate(loader):
        loss = model(input)
        loss.backward()
        optimizer.step()

if __name__ == '__main__':
    main()
";
    check_script(text, "train.py:5 128");
}

#[test]
fn fastai_and_torchtext() {
    check_script(
        "dls = ImageDataLoaders.from_folder(path, valid_pct=0.2, bs=48)\nlearn = vision_learner(dls, resnet18)\nlearn.fit(1)\nfor xb, yb in dls.train:\n    f(xb).backward()\n",
        "train.py:1 48",
    );
    check_script(
        "train_iter, valid_iter = BucketIterator.splits((a, b), batch_size=48, device=d)\nfor batch in train_iter:\n    f(batch.text).backward()\n",
        "train.py:1 48",
    );
}

#[test]
fn the_transfer_learning_tutorial() {
    let text = "image_datasets = {x: ImageFolder(x) for x in ['train', 'val']}
dataloaders = {x: torch.utils.data.DataLoader(image_datasets[x], batch_size=4,
                                             shuffle=True, num_workers=4)
              for x in ['train', 'val']}
def train_model(model, criterion, optimizer, scheduler, num_epochs=25):
    for epoch in range(num_epochs):
        for phase in ['train', 'val']:
            for inputs, labels in dataloaders[phase]:
                loss = criterion(model(inputs), labels)
                if phase == 'train':
                    loss.backward()
                    optimizer.step()
train_model(model, criterion, optimizer, scheduler)
";
    check_script(text, "train.py:2 4");
}

#[test]
fn the_accelerate_example() {
    let text = "MAX_GPU_BATCH_SIZE = 16
def get_dataloaders(accelerator, batch_size: int = 16):
    train_dataloader = DataLoader(ds['train'], shuffle=True, batch_size=batch_size, drop_last=True)
    eval_dataloader = DataLoader(ds['validation'], batch_size=EVAL_BATCH_SIZE)
    return train_dataloader, eval_dataloader
def training_function(config, args):
    batch_size = int(config['batch_size'])
    if batch_size > MAX_GPU_BATCH_SIZE and accelerator.distributed_type != DistributedType.XLA:
        batch_size = MAX_GPU_BATCH_SIZE
    train_dataloader, eval_dataloader = get_dataloaders(accelerator, batch_size)
    model, optimizer, train_dataloader, eval_dataloader = accelerator.prepare(
        model, optimizer, train_dataloader, eval_dataloader
    )
    for epoch in range(3):
        for step, batch in enumerate(train_dataloader):
            accelerator.backward(model(batch).loss)
            optimizer.step()
def main():
    config = {'lr': 2e-5, 'num_epochs': 3, 'seed': 42, 'batch_size': 12}
    training_function(config, args)
main()
";
    check_script(text, "train.py:19 12");
}

#[test]
fn ml_collections_config() {
    let text = "def get_config():
    config = ml_collections.ConfigDict()
    config.train = ml_collections.ConfigDict()
    config.train.batch_size = 36
    return config
config = get_config()
loader = DataLoader(ds, batch_size=config.train.batch_size)
";
    check_script(&format!("{text}{LOOP}"), "train.py:4 36");
}

#[test]
fn options_in_a_class() {
    let options = "import argparse
class TrainOptions:
    def initialize(self, parser):
        parser.add_argument('--batch_size', type=int, default=5, help='input batch size')
        return parser
    def parse(self):
        self.opt = self.initialize(argparse.ArgumentParser()).parse_args()
        return self.opt
";
    let train = "from options import TrainOptions
from data import create_dataset
opt = TrainOptions().parse()
dataset = create_dataset(opt)
for epoch in range(9):
    for i, data in enumerate(dataset):
        model.set_input(data)
        f(data).backward()
";
    let data = "import torch
def create_dataset(opt):
    return CustomLoader(opt).load()
class CustomLoader:
    def __init__(self, opt):
        self.opt = opt
        self.dataloader = torch.utils.data.DataLoader(d, batch_size=opt.batch_size, shuffle=True)
    def load(self):
        return self
    def __iter__(self):
        for i, data in enumerate(self.dataloader):
            yield data
";
    check(&[("train.py", train), ("options.py", options), ("data.py", data)], "options.py:4 5");
}

#[test]
fn batch_samplers() {
    check_script(
        "sampler = BatchSampler(RandomSampler(ds), batch_size=9, drop_last=True)\nloader = DataLoader(ds, batch_sampler=sampler)\nfor x in loader:\n    f(x).backward()\n",
        "train.py:1 9",
    );
    check_script(
        "loader = DataLoader(ds, batch_sampler=BatchSampler(s, 9, False))\nfor x in loader:\n    f(x).backward()\n",
        "train.py:1 9",
    );
}

#[test]
fn subclass_of_the_loader() {
    check_script(
        "class FastLoader(DataLoader):\n    def __init__(self, data, batch_size=4, **kwargs):\n        super().__init__(data, batch_size=batch_size, **kwargs)\nloader = FastLoader(ds)\nfor x in loader:\n    f(x).backward()\n",
        "train.py:2 4",
    );
}

#[test]
fn reinforcement_learning() {
    check_script(
        "BATCH_SIZE = 128\nmemory = ReplayMemory(10000)\ndef optimize_model():\n    transitions = memory.sample(BATCH_SIZE)\n    loss = f(transitions)\n    loss.backward()\n    optimizer.step()\nfor episode in range(50):\n    optimize_model()\n",
        "train.py:1 128",
    );
}
