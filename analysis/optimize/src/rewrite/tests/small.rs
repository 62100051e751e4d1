//! Edits of single arguments and statements.

use expect_test::expect;

use super::*;

const FUSED: EditKind = EditKind::FusedOptimizer;
const WORKERS: EditKind = EditKind::LoaderWorkers;

#[test]
fn a_plain_script() {
    check(
        EditKind::Tf32,
        PLAIN,
        expect![[r#"

        +torch.set_float32_matmul_precision('high')
        +
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    "#]],
    );
    check(
        FUSED,
        PLAIN,
        expect![[r#"
         criterion = nn.CrossEntropyLoss()
        -optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        +optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

    "#]],
    );
    check(
        EditKind::ForeachOptimizer,
        PLAIN,
        expect![[r#"
         criterion = nn.CrossEntropyLoss()
        -optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        +optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=True)

    "#]],
    );
    check(
        WORKERS,
        PLAIN,
        expect![[r#"
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        -loader = DataLoader(data, batch_size=32, shuffle=True)
        +loader = DataLoader(
        +    data,
        +    batch_size=32,
        +    shuffle=True,
        +    num_workers=4,
        +    persistent_workers=True,
        +)
         model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
    "#]],
    );
    check(
        EditKind::PinnedMemory,
        PLAIN,
        expect![[r#"
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        -loader = DataLoader(data, batch_size=32, shuffle=True)
        +loader = DataLoader(data, batch_size=32, shuffle=True, pin_memory=True)
         model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
        …
             for x, y in loader:
        -        x, y = x.to(device), y.to(device)
        +        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
                 # forward
    "#]],
    );
    check_refused(
        EditKind::ZeroGradToNone,
        PLAIN,
        expect!["done: train.py:18 already sets gradients to None"],
    );
}

#[test]
fn arguments_follow_the_layout_of_the_call() {
    let layouts = [
        "torch.optim.SGD(p)",
        "torch.optim.SGD(p, lr=1,)",
        "torch.optim.SGD(\n    p,\n    lr=1,  # fast\n)",
        "torch.optim.SGD(\n    p,\n    lr=1  # fast\n)",
        "torch.optim.SGD(\n    p, lr=1\n)",
        "torch.optim.SGD(p,\n                lr=1)",
        "torch.optim.SGD(p, lr=1, foreach=False)",
        "torch.optim.SGD(p, lr=1, fused=None)",
        "torch.optim.SGD((q for q in p), lr=1)",
    ];
    let shown: String = layouts
        .iter()
        .map(|layout| {
            let script = format!("import torch\nopt = {layout}\n");
            let after = edited(&[("train.py", &script)], request_for(FUSED));
            after["train.py"].trim_start_matches("import torch\nopt = ").to_owned()
        })
        .collect();
    expect![[r#"
        torch.optim.SGD(p, fused=True)
        torch.optim.SGD(p, lr=1, fused=True,)
        torch.optim.SGD(
            p,
            lr=1,  # fast
            fused=True,
        )
        torch.optim.SGD(
            p,
            lr=1,  # fast
            fused=True
        )
        torch.optim.SGD(
            p, lr=1, fused=True
        )
        torch.optim.SGD(p,
                        lr=1, fused=True)
        torch.optim.SGD(p, lr=1, fused=True)
        torch.optim.SGD(p, lr=1, fused=True)
        torch.optim.SGD((q for q in p), lr=1, fused=True)
    "#]]
    .assert_eq(&shown);
}

#[test]
fn optimizers_are_recognized_by_their_imports() {
    check(
        FUSED,
        "from torch.optim import AdamW as A\nimport torch.optim as o\nx = A(p)\ny = o.SGD(p) if sgd else o.RMSprop(p)\n",
        expect![[r#"
             import torch.optim as o
            -x = A(p)
            -y = o.SGD(p) if sgd else o.RMSprop(p)
            +x = A(p, fused=True)
            +y = o.SGD(p, fused=True) if sgd else o.RMSprop(p)

        "#]],
    );
    check_refused(
        FUSED,
        "from transformers import AdamW\nopt = AdamW(model.parameters())\n",
        expect!["train.py:2 creates the optimizer with `AdamW`, which is not part of PyTorch"],
    );
    check_refused(
        FUSED,
        "import torch\nopt = torch.optim.LBFGS(p)\n",
        expect!["train.py:2 creates LBFGS, which does not support fused"],
    );
    check_refused(
        FUSED,
        "import torch\nopt = torch.optim.SGD(p, **extra)\n",
        expect![
            "train.py:2 passes starred arguments to the optimizer, which may already set fused"
        ],
    );
    check_refused(
        FUSED,
        "import torch\nopt = torch.optim.SGD(p, fused=args.fused)\n",
        expect!["train.py:2 takes fused from `args.fused`: set it there"],
    );
    check_refused(
        FUSED,
        "from timm.optim import create_optimizer_v2\noptimizer = create_optimizer_v2(model)\n",
        expect![
            "train.py:2 creates the optimizer with `create_optimizer_v2`, which is not part of PyTorch"
        ],
    );
    check_refused(
        EditKind::ForeachOptimizer,
        "import torch\nopt = torch.optim.SGD(p, fused=True)\n",
        expect!["done: train.py:2 has fused=True, which already includes this"],
    );
}

#[test]
fn gradients_to_none() {
    check(
        EditKind::ZeroGradToNone,
        "import torch\nfor x in d:\n    opt.zero_grad(set_to_none=False)\n    model.zero_grad(False)\n    for p in model.parameters():\n        if p.grad is not None:\n            p.grad.data.zero_()\n    w.grad.zero_()\n    f(x).backward()\n",
        expect![[r#"
             for x in d:
            -    opt.zero_grad(set_to_none=False)
            -    model.zero_grad(False)
            +    opt.zero_grad(set_to_none=True)
            +    model.zero_grad(set_to_none=True)
                 for p in model.parameters():
                     if p.grad is not None:
            -            p.grad.data.zero_()
            -    w.grad.zero_()
            +            p.grad = None
            +    w.grad = None
                 f(x).backward()
        "#]],
    );
    check_refused(
        EditKind::ZeroGradToNone,
        "for x in d:\n    f(x).backward()\n",
        expect!["no zero_grad() call was found in the program"],
    );
}

#[test]
fn tf32() {
    check(
        EditKind::Tf32,
        "\"\"\"Doc.\"\"\"\nfrom __future__ import annotations\n\nfrom torch import nn\nimport os  # system\nX = 1\n",
        expect![[r#"

            +import torch
             from torch import nn
             import os  # system
            +
            +torch.set_float32_matmul_precision("high")
             X = 1
        "#]],
    );
    check(
        EditKind::Tf32,
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = False\n",
        expect![[r#"
             import torch
            -torch.backends.cuda.matmul.allow_tf32 = False
            +torch.backends.cuda.matmul.allow_tf32 = True

        "#]],
    );
    check(
        EditKind::Tf32,
        "import torch\ntorch.set_float32_matmul_precision('highest')\n",
        expect![[r#"
             import torch
            -torch.set_float32_matmul_precision('highest')
            +torch.set_float32_matmul_precision('high')

        "#]],
    );
    check_refused(EditKind::Tf32, "print(1)\n", expect!["train.py has no imports"]);
}

#[test]
fn workers() {
    check(
        WORKERS,
        "import argparse\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default=0)\nargs = p.parse_args()\nloader = DataLoader(\n    d,\n    num_workers=args.workers,\n)\nval_loader = DataLoader(v)\n",
        expect![[r#"
             p = argparse.ArgumentParser()
            -p.add_argument('--workers', type=int, default=0)
            +p.add_argument('--workers', type=int, default=4)
             args = p.parse_args()
            …
                 num_workers=args.workers,
            +    persistent_workers=args.workers > 0,
             )
        "#]],
    );
    check(
        WORKERS,
        "from torch.utils.data import DataLoader\nloader = DataLoader(d, num_workers=0, persistent_workers=False)\nif __name__ == '__main__': run()\n",
        expect![[r#"
             from torch.utils.data import DataLoader
            -loader = DataLoader(d, num_workers=0, persistent_workers=False)
            +loader = DataLoader(d, num_workers=4, persistent_workers=True)
             if __name__ == '__main__': run()
        "#]],
    );
    let two = Request { kind: WORKERS, lines: &[], count: Some(2) };
    check_files(
        &[("train.py", "from torch.utils import data\nl = data.DataLoader(d, 8, num_workers=1)\n")],
        two,
        expect![[r#"
             from torch.utils import data
            -l = data.DataLoader(d, 8, num_workers=1)
            +l = data.DataLoader(d, 8, num_workers=2, persistent_workers=True)

        "#]],
    );
    check_refused_files(
        &[("train.py", "from torch.utils import data\nl = data.DataLoader(d, 8, num_workers=8)\n")],
        two,
        expect!["done: train.py:2 already uses workers"],
    );
    check_refused(
        WORKERS,
        "from torch.utils.data import DataLoader, IterableDataset\nclass S(IterableDataset):\n    pass\nloader = DataLoader(S())\n",
        expect!["train.py:2 is an IterableDataset: every worker would yield every sample"],
    );
    let draws = "import numpy as np\nfrom torch.utils.data import DataLoader\nclass S:\n    def __init__(self):\n        \
        self.rng = np.random.default_rng(0)\n    def __getitem__(self, i):\n        return self.rng.normal()\n\
        loader = DataLoader(S())\n";
    check_refused(
        WORKERS,
        draws,
        expect![
            "train.py:5 is a random generator in the dataset: every worker would draw the same numbers"
        ],
    );
    // It generates the samples once, before workers start.
    let once = draws.replace("return self.rng.normal()", "return i");
    let made = edited(&[("train.py", &once)], request_for(WORKERS));
    assert!(made["train.py"].contains("num_workers=4"));
    check_refused(
        WORKERS,
        "from torch.utils.data import DataLoader\nloader = DataLoader(d, **options)\n",
        expect![
            "train.py:2 passes starred arguments to the DataLoader, which may already set num_workers"
        ],
    );
    check_refused(
        WORKERS,
        "from torch.utils.data import DataLoader\nloader = DataLoader(d, num_workers=cfg.workers)\n",
        expect!["train.py:2 takes num_workers from `cfg.workers`: set it there"],
    );
    check_refused(
        WORKERS,
        "loader = batches()\n",
        expect!["no DataLoader was found in the program"],
    );
}

#[test]
fn pinned_memory() {
    check(
        EditKind::PinnedMemory,
        "from torch.utils.data import DataLoader\nloader = DataLoader(d, pin_memory=False)\nclass T:\n    def one(self, x):\n        x = x.cuda()\n        return self.model(x, self.mask.to(torch.float32))\n    def fit(self):\n        for x in loader:\n            self.one(x).backward()\n            opt.step()\nT().fit()\n",
        expect![[r#"
             from torch.utils.data import DataLoader
            -loader = DataLoader(d, pin_memory=False)
            +loader = DataLoader(d, pin_memory=True)
             class T:
                 def one(self, x):
            -        x = x.cuda()
            +        x = x.cuda(non_blocking=True)
                     return self.model(x, self.mask.to(torch.float32))
        "#]],
    );
    check_refused(
        EditKind::PinnedMemory,
        "from torch.utils.data import DataLoader\nfor x in DataLoader(d):\n    model(x).backward()\n",
        expect!["no batch is copied to a GPU in the loop"],
    );
}
