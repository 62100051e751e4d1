//! Training on several GPUs: `torchrun` and `DistributedDataParallel`.

use expect_test::expect;

use super::*;

mod refusals;

const PARALLEL: EditKind = EditKind::DataParallel;

/// A script whose layers have their parameters from the start.
fn plain() -> String {
    PLAIN.replace("LazyLinear(10)", "Linear(8, 10)")
}

#[test]
fn a_plain_script() {
    check(
        PARALLEL,
        &plain(),
        expect![[r#"
        +import os
        +
         import torch
         from torch import nn
        +from torch.nn.parallel import DistributedDataParallel
         from torch.utils.data import DataLoader
        +from torch.utils.data import DistributedSampler

        +# torchrun starts one process for each GPU, and sets RANK.
        +if 'RANK' in os.environ:
        +    if torch.cuda.is_available():
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        -loader = DataLoader(data, batch_size=32, shuffle=True)
        +sampler = DistributedSampler(data) if 'RANK' in os.environ else None
        +loader = DataLoader(data, batch_size=32, shuffle=sampler is None, sampler=sampler)
         model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 10)).to(device)
        +if 'RANK' in os.environ:
        +    model = DistributedDataParallel(model)
         criterion = nn.CrossEntropyLoss()
        …
         for epoch in range(3):
        +    if 'RANK' in os.environ:
        +        loader.sampler.set_epoch(epoch)
             for x, y in loader:
        …
                 optimizer.step()
        -    print(epoch, loss.item())
        +    if os.environ.get('RANK', '0') == '0':
        +        print(epoch, loss.item())
        +if 'RANK' in os.environ:
        +    torch.distributed.destroy_process_group()

    "#]],
    );
}

/// A script in `main()` with aliases, `.cuda()`, a function for each epoch, validation, and a checkpoint.
const MAIN: &str = "\
\"\"\"Trains.\"\"\"

from __future__ import annotations

import argparse

import torch as th
from torch import nn
import torch.utils.data as data

from net import Net


def train_epoch(net, batches, opt):
    net.train()
    for step, (x, y) in enumerate(batches):
        loss = nn.functional.cross_entropy(net(x.cuda()), y.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 10 == 0 or step == 1:
            print(step)
    return loss


def evaluate(model, batches):
    model.eval()
    with th.no_grad():
        print(sum(model(x).sum().item() for x, _ in batches))


def main():
    args = read()
    net = Net(args.width)
    opt = th.optim.SGD(net.parameters(), lr=1)
    if args.start:
        net.load_state_dict(th.load(args.start))
    net = net.cuda()
    loader = data.DataLoader(
        Images(args.root),
        batch_size=args.batch_size,
        num_workers=4,
        shuffle=True,
    )
    test_loader = data.DataLoader(Images('test'))
    for _ in range(args.epochs):
        loss = train_epoch(net, loader, opt)
        print('loss', loss.item())
        print('done')
        evaluate(net, test_loader)
        if args.save:
            th.save({'net': net.state_dict(), 'opt': opt.state_dict()}, 'net.pt')
    th.save(net, 'whole.pt')


if __name__ == '__main__':
    main()
";
const NET: &str = "from torch import nn\n\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return x\n";

#[test]
fn a_main_function() {
    check_files(
        &[("train.py", MAIN), ("net.py", NET)],
        request_for(PARALLEL),
        expect![[r#"
        == train.py
         import argparse
        +import os

        …
         import torch.utils.data as data
        +from torch.nn.parallel import DistributedDataParallel
        +from torch.utils.data import DistributedSampler

        …
                 opt.step()
        -        if step % 10 == 0 or step == 1:
        +        if (step % 10 == 0 or step == 1) and os.environ.get('RANK', '0') == '0':
                     print(step)
        …
             net = net.cuda()
        +    if 'RANK' in os.environ:
        +        net = DistributedDataParallel(net)
        +    dataset = Images(args.root)
        +    sampler = DistributedSampler(dataset) if 'RANK' in os.environ else None
             loader = data.DataLoader(
        -        Images(args.root),
        +        dataset,
                 batch_size=args.batch_size,
                 num_workers=4,
        -        shuffle=True,
        +        shuffle=sampler is None,
        +        sampler=sampler,
             )
             test_loader = data.DataLoader(Images('test'))
        -    for _ in range(args.epochs):
        +    for epoch in range(args.epochs):
        +        if 'RANK' in os.environ:
        +            loader.sampler.set_epoch(epoch)
                 loss = train_epoch(net, loader, opt)
        -        print('loss', loss.item())
        -        print('done')
        +        if os.environ.get('RANK', '0') == '0':
        +            print('loss', loss.item())
        +            print('done')
                 evaluate(net, test_loader)
        -        if args.save:
        -            th.save({'net': net.state_dict(), 'opt': opt.state_dict()}, 'net.pt')
        -    th.save(net, 'whole.pt')
        +        if args.save and os.environ.get('RANK', '0') == '0':
        +            th.save({'net': getattr(net, 'module', net).state_dict(), 'opt': opt.state_dict()}, 'net.pt')
        +    if os.environ.get('RANK', '0') == '0':
        +        th.save(getattr(net, 'module', net), 'whole.pt')

        …
         if __name__ == '__main__':
        +    # torchrun starts one process for each GPU, and sets RANK.
        +    if 'RANK' in os.environ:
        +        if th.cuda.is_available():
        +            th.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +        th.distributed.init_process_group('nccl' if th.cuda.is_available() else 'gloo')
             main()
        +    if 'RANK' in os.environ:
        +        th.distributed.destroy_process_group()

    "#]],
    );
}

#[test]
fn in_the_block_of_the_entry() {
    let text = "import torch\nfrom torch import nn\nfrom torch.utils.data import DataLoader\n\nif __name__ == '__main__':\n    model = nn.BatchNorm1d(8)\n    model = model.to('cuda')\n    batches = DataLoader(samples, 4, shuffle=False)\n    for epoch in range(3):\n        for x in batches:\n            model(x.to('cuda')).sum().backward()\n            optimizer.step()\n";
    check(
        PARALLEL,
        text,
        expect![[r#"
        +import os
        +
         import torch
         from torch import nn
        +from torch.nn.parallel import DistributedDataParallel
         from torch.utils.data import DataLoader
        +from torch.utils.data import DistributedSampler

         if __name__ == '__main__':
        +    # torchrun starts one process for each GPU, and sets RANK.
        +    if 'RANK' in os.environ:
        +        if torch.cuda.is_available():
        +            torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +        torch.distributed.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')
             model = nn.BatchNorm1d(8)
             model = model.to('cuda')
        -    batches = DataLoader(samples, 4, shuffle=False)
        +    if 'RANK' in os.environ:
        +        model = DistributedDataParallel(model)
        +    sampler = DistributedSampler(samples, shuffle=False) if 'RANK' in os.environ else None
        +    batches = DataLoader(samples, 4, shuffle=False, sampler=sampler)
             for epoch in range(3):
        …
                     optimizer.step()
        +    if 'RANK' in os.environ:
        +        torch.distributed.destroy_process_group()

    "#]],
    );
}

#[test]
fn in_a_class() {
    let text = "import torch\nfrom torch import nn, optim\nfrom torch.utils.data import DataLoader\n\nclass Trainer:\n    def __init__(self, model, device):\n        self.model = model.to(device)\n        self.optimizer = optim.SGD(model.parameters(), lr=1)\n\n    def fit(self, loader, epochs):\n        for epoch in range(epochs):\n            self.run(loader)\n\n    def run(self, loader):\n        for x, y in loader:\n            loss = (self.model(x) - y).square().mean()\n            loss.backward()\n            self.optimizer.step()\n            self.optimizer.zero_grad()\n\n    def save(self):\n        torch.save(self.model.state_dict(), 'a.pt')\n\ndef main():\n    loader = DataLoader(samples, batch_size=8, shuffle=True)\n    trainer = Trainer(nn.Linear(8, 2), 'cpu')\n    trainer.fit(loader, 3)\n    trainer.save()\n\nmain()\n";
    check(
        PARALLEL,
        text,
        expect![[r#"
        +import os
        +
         import torch
         from torch import nn, optim
        +from torch.nn.parallel import DistributedDataParallel
         from torch.utils.data import DataLoader
        +from torch.utils.data import DistributedSampler

        …
                 self.model = model.to(device)
        +        if 'RANK' in os.environ:
        +            self.model = DistributedDataParallel(self.model)
                 self.optimizer = optim.SGD(model.parameters(), lr=1)
        …
                 for epoch in range(epochs):
        +            if 'RANK' in os.environ:
        +                loader.sampler.set_epoch(epoch)
                     self.run(loader)
        …
             def save(self):
        -        torch.save(self.model.state_dict(), 'a.pt')
        +        if os.environ.get('RANK', '0') == '0':
        +            torch.save(getattr(self.model, 'module', self.model).state_dict(), 'a.pt')

         def main():
        -    loader = DataLoader(samples, batch_size=8, shuffle=True)
        +    sampler = DistributedSampler(samples) if 'RANK' in os.environ else None
        +    loader = DataLoader(samples, batch_size=8, shuffle=sampler is None, sampler=sampler)
             trainer = Trainer(nn.Linear(8, 2), 'cpu')
        …

        +# torchrun starts one process for each GPU, and sets RANK.
        +if 'RANK' in os.environ:
        +    if torch.cuda.is_available():
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')
         main()
        +if 'RANK' in os.environ:
        +    torch.distributed.destroy_process_group()

    "#]],
    );
}

/// All processes take the same branches.
#[test]
fn loops_that_end_by_a_counter() {
    let script = plain()
        .replace("for x, y in loader:\n", "for step, (x, y) in enumerate(loader):\n        if step == 100 or args.quick:\n            break\n")
        .replace("    print(epoch", "    done += 1\n    if done > args.most:\n        break\n    print(epoch");
    let parallel = edited(&[("train.py", &script)], request_for(PARALLEL));
    assert!(parallel["train.py"].contains("set_epoch"));
}

#[test]
fn with_accumulated_gradients() {
    let step = "        optimizer.zero_grad()\n        loss.backward()\n        optimizer.step()\n";
    let accumulated = "        loss.backward()\n        if (step + 1) % 4 == 0:\n            optimizer.step()\n            optimizer.zero_grad()\n";
    let text = plain().replace(step, accumulated);
    let text = text.replace("for x, y in loader:", "for step, (x, y) in enumerate(loader):");
    check(
        PARALLEL,
        &text,
        expect![[r#"
        +import os
        +
         import torch
         from torch import nn
        +from torch.nn.parallel import DistributedDataParallel
         from torch.utils.data import DataLoader
        +from torch.utils.data import DistributedSampler
        +from contextlib import nullcontext

        +# torchrun starts one process for each GPU, and sets RANK.
        +if 'RANK' in os.environ:
        +    if torch.cuda.is_available():
        +        torch.cuda.set_device(int(os.environ['LOCAL_RANK']))
        +    torch.distributed.init_process_group('nccl' if torch.cuda.is_available() else 'gloo')
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        -loader = DataLoader(data, batch_size=32, shuffle=True)
        +sampler = DistributedSampler(data) if 'RANK' in os.environ else None
        +loader = DataLoader(data, batch_size=32, shuffle=sampler is None, sampler=sampler)
         model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 10)).to(device)
        +if 'RANK' in os.environ:
        +    model = DistributedDataParallel(model)
         criterion = nn.CrossEntropyLoss()
        …
         for epoch in range(3):
        +    if 'RANK' in os.environ:
        +        loader.sampler.set_epoch(epoch)
             for step, (x, y) in enumerate(loader):
        …
                 # forward
        -        out = model(x)
        +        with nullcontext() if (step + 1) % 4 == 0 or 'RANK' not in os.environ else model.no_sync():
        +            out = model(x)

        -        loss = criterion(out, y)  # the loss
        -        loss.backward()
        +            loss = criterion(out, y)  # the loss
        +            loss.backward()
                 if (step + 1) % 4 == 0:
        …
                     optimizer.zero_grad()
        -    print(epoch, loss.item())
        +    if os.environ.get('RANK', '0') == '0':
        +        print(epoch, loss.item())
        +if 'RANK' in os.environ:
        +    torch.distributed.destroy_process_group()

    "#]],
    );
}

#[test]
fn the_notes_name_the_launcher_and_the_batch_size() {
    let (texts, entry) = project(&[("train.py", &plain())]);
    let made = rewrite(&texts, &entry, &request_for(PARALLEL)).expect("an edit");
    expect![[r#"
        start it with `torchrun --standalone --nproc-per-node N train.py`, where N is the number of GPUs; without torchrun it trains as before
        the batch size is that of one process: N processes train on N times as many samples per step, with the same learning rate
        the first process prints values of its own samples"#]].assert_eq(&made.notes.join("\n"));
}
