//! Shortened versions of well-known public scripts.

use super::*;

#[test]
fn the_official_mnist_example() {
    let text = "import argparse, torch
def train(args, model, device, train_loader, optimizer, epoch):
    model.train()
    for batch_idx, (data, target) in enumerate(train_loader):
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()

def test(model, device, test_loader):
    for data, target in test_loader:
        model(data)

def main():
    parser = argparse.ArgumentParser(description='PyTorch MNIST Example')
    parser.add_argument('--batch-size', type=int, default=64, metavar='N',
                        help='input batch size for training (default: 64)')
    parser.add_argument('--test-batch-size', type=int, default=1000, metavar='N')
    parser.add_argument('--no-accel', action='store_true')
    args = parser.parse_args()
    use_accel = not args.no_accel and torch.accelerator.is_available()
    train_kwargs = {'batch_size': args.batch_size}
    test_kwargs = {'batch_size': args.test_batch_size}
    if use_accel:
        accel_kwargs = {'num_workers': 1, 'pin_memory': True}
        train_kwargs.update(accel_kwargs)
    train_loader = torch.utils.data.DataLoader(dataset1, **train_kwargs)
    test_loader = torch.utils.data.DataLoader(dataset2, **test_kwargs)
    for epoch in range(1, args.epochs + 1):
        train(args, model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)

if __name__ == '__main__':
    main()
";
    let site = check_script(text, "train.py:16 64");
    assert_eq!(site.note, None);
}

#[test]
fn the_official_imagenet_example() {
    let text = "import argparse
parser = argparse.ArgumentParser(description='PyTorch ImageNet Training')
parser.add_argument('-b', '--batch-size', default=256, type=int,
                    metavar='N')
parser.add_argument('--gpu', default=None, type=int)

def main():
    args = parser.parse_args()
    if args.multiprocessing_distributed:
        mp.spawn(main_worker, nprocs=ngpus_per_node, args=(ngpus_per_node, args))
    else:
        main_worker(args.gpu, ngpus_per_node, args)

def main_worker(gpu, ngpus_per_node, args):
    args.gpu = gpu
    if args.distributed:
        if torch.cuda.is_available():
            if args.gpu is not None:
                args.batch_size = int(args.batch_size / ngpus_per_node)
    train_loader = torch.utils.data.DataLoader(
        train_dataset, batch_size=args.batch_size, shuffle=(train_sampler is None),
        num_workers=args.workers, pin_memory=True, sampler=train_sampler)
    val_loader = torch.utils.data.DataLoader(
        val_dataset, batch_size=args.batch_size, shuffle=False)
    for epoch in range(args.start_epoch, args.epochs):
        train(train_loader, model, criterion, optimizer, epoch, device, args)

def train(train_loader, model, criterion, optimizer, epoch, device, args):
    for i, (images, target) in enumerate(train_loader):
        loss = criterion(model(images), target)
        loss.backward()
        optimizer.step()

main()
";
    let site = check_script(text, "train.py:3 256");
    assert_eq!(site.note.as_deref(), Some("val_loader uses the same number"));
}

#[test]
fn the_official_word_language_model() {
    let text = "import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--batch_size', type=int, default=20, metavar='N')
parser.add_argument('--bptt', type=int, default=35)
args = parser.parse_args()
def batchify(data, bsz):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous().to(device)
eval_batch_size = 10
train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, eval_batch_size)
def get_batch(source, i):
    seq_len = min(args.bptt, len(source) - 1 - i)
    data = source[i:i+seq_len]
    return data, data
def train():
    for batch, i in enumerate(range(0, train_data.size(0) - 1, args.bptt)):
        data, targets = get_batch(train_data, i)
        loss = criterion(model(data), targets)
        loss.backward()
for epoch in range(1, 3):
    train()
";
    check_script(text, "train.py:3 20");
}

#[test]
fn min_gpt() {
    check(
        &[
            (
                "train.py",
                "from trainer import Trainer\nfrom utils import CfgNode as CN\ndef get_config():\n    C = CN()\n    C.trainer = Trainer.get_default_config()\n    C.trainer.learning_rate = 5e-4\n    return C\nif __name__ == '__main__':\n    config = get_config()\n    trainer = Trainer(config.trainer, model, train_dataset)\n    trainer.run()\n",
            ),
            (
                "trainer.py",
                "from utils import CfgNode as CN\nclass Trainer:\n    @staticmethod\n    def get_default_config():\n        C = CN()\n        C.max_iters = None\n        C.batch_size = 64\n        return C\n    def __init__(self, config, model, train_dataset):\n        self.config = config\n    def run(self):\n        model, config = self.model, self.config\n        train_loader = DataLoader(self.train_dataset, shuffle=False, batch_size=config.batch_size)\n        data_iter = iter(train_loader)\n        while True:\n            batch = next(data_iter)\n            logits, self.loss = model(batch)\n            self.loss.backward()\n",
            ),
            (
                "utils.py",
                "class CfgNode:\n    def __init__(self, **kwargs):\n        self.__dict__.update(kwargs)\n",
            ),
        ],
        "trainer.py:7 64",
    );
}

#[test]
fn nano_gpt() {
    let text = "import torch
batch_size = 12 # if gradient_accumulation_steps > 1, this is the micro-batch size
block_size = 1024
exec(open('configurator.py').read())
def get_batch(split):
    data = train_data if split == 'train' else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy(data[i:i+block_size]) for i in ix])
    return x, x
X, Y = get_batch('train')
while True:
    for micro_step in range(gradient_accumulation_steps):
        with ctx:
            logits, loss = model(X, Y)
        X, Y = get_batch('train')
        scaler.scale(loss).backward()
    scaler.step(optimizer)
";
    check_script(text, "train.py:2 12");
    let set = |entry: &mut Entry| entry.arguments = vec!["--batch_size=32".to_owned()];
    check_refused_with(&[("train.py", text)], set, "--batch_size to 32: change it there");
}
