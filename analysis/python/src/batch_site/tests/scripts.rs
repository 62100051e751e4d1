//! Plain scripts: arguments, constants, functions, classes.

use super::*;

#[track_caller]
fn with_loop(head: &str, expected: &str) -> BatchSite {
    check_script(
        &format!("import torch\nfrom torch.utils.data import DataLoader\n{head}{LOOP}"),
        expected,
    )
}

#[test]
fn literals() {
    with_loop("loader = DataLoader(ds, batch_size=32)\n", "train.py:3 32");
    with_loop("loader = DataLoader(ds, 1_024, shuffle=True)\n", "train.py:3 1024");
    with_loop(
        "loader = DataLoader(\n    ds,\n    shuffle=True,\n    batch_size=0x20,  # 32\n)\n",
        "train.py:6 32",
    );
    with_loop("loader = DataLoader(ds, batch_size=2 ** 5)\n", "train.py:3 32");
    with_loop(
        "loader = torch.utils.data.DataLoader(dataset=ds, batch_size=(16))\n",
        "train.py:3 16",
    );
}

#[test]
fn constants() {
    with_loop("BATCH_SIZE = 64\nloader = DataLoader(ds, batch_size=BATCH_SIZE)\n", "train.py:3 64");
    with_loop("lr, bs = 0.1, 64\nloader = DataLoader(ds, bs)\n", "train.py:3 64");
    with_loop("a = b = 48\nloader = DataLoader(ds, b)\n", "train.py:3 48");
    with_loop("batch_size: int = 32\nloader = DataLoader(ds, batch_size)\n", "train.py:3 32");
    with_loop(
        "class Config:\n    batch_size = 8\nloader = DataLoader(ds, Config.batch_size)\n",
        "train.py:4 8",
    );
    with_loop(
        "batch_size = 16\nbatch_size = 24\nloader = DataLoader(ds, batch_size)\n",
        "train.py:4 24",
    );
}

#[test]
fn dictionaries() {
    with_loop(
        "config = {'lr': 0.1, 'batch_size': 32}\nloader = DataLoader(ds, batch_size=config['batch_size'])\n",
        "train.py:3 32",
    );
    with_loop(
        "config = {\n  'train': {'batch_size': 32},\n}\nloader = DataLoader(ds, config[\"train\"]['batch_size'])\n",
        "train.py:4 32",
    );
    with_loop(
        "config = dict(batch_size=32)\nloader = DataLoader(ds, config['batch_size'])\n",
        "train.py:3 32",
    );
    with_loop(
        "config = {}\nconfig['batch_size'] = 40\nloader = DataLoader(ds, config['batch_size'])\n",
        "train.py:4 40",
    );
    with_loop("c = {'bs': 4}\nloader = DataLoader(ds, c.get('bs', 8))\n", "train.py:3 4");
    with_loop("c = {}\nloader = DataLoader(ds, c.get('bs', 8))\n", "train.py:4 8");
    with_loop(
        "from types import SimpleNamespace\ncfg = SimpleNamespace(lr=1, batch_size=12)\nloader = DataLoader(ds, cfg.batch_size)\n",
        "train.py:4 12",
    );
    with_loop(
        "KEY = 'batch_size'\nc = {KEY: 4}\nloader = DataLoader(ds, c[KEY])\n",
        "train.py:4 4",
    );
}

const PARSER: &str = "import argparse\nparser = argparse.ArgumentParser()\n";

#[test]
fn argparse_defaults() {
    let declared =
        "parser.add_argument('--batch-size', '-b', type=int, default=32, help='of training')\n";
    with_loop(
        &format!(
            "{PARSER}{declared}args = parser.parse_args()\nloader = DataLoader(ds, batch_size=args.batch_size)\n"
        ),
        "train.py:5 32",
    );
    with_loop(
        &format!(
            "{PARSER}{declared}args, _ = parser.parse_known_args()\nloader = DataLoader(ds, args.batch_size)\n"
        ),
        "train.py:5 32",
    );
    with_loop(
        &format!(
            "{PARSER}{declared}opt = vars(parser.parse_args())\nloader = DataLoader(ds, opt['batch_size'])\n"
        ),
        "train.py:5 32",
    );
    with_loop(
        &format!(
            "{PARSER}parser.add_argument(\n    '-b',\n    dest='bs',\n    type=int,\n    default='16',\n)\nargs = parser.parse_args()\nloader = DataLoader(ds, args.bs)\n"
        ),
        "train.py:9 16",
    );
    with_loop(
        &format!(
            "{PARSER}group = parser.add_argument_group('d')\ngroup.add_argument('--batch_size', default=5)\nargs = parser.parse_args()\nbatch_size = args.batch_size\nloader = DataLoader(ds, batch_size)\n"
        ),
        "train.py:6 5",
    );
}

#[test]
fn parser_in_a_function_and_switches() {
    let text = "import argparse
from torch.utils.data import DataLoader

def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument('--batch-size', type=int, default=8)
    parser.add_argument('--big', action='store_true')
    args = parser.parse_args()
    if args.big:
        args.batch_size, args.images = 128, 9
    return args

def main():
    args = parse_args()
    loader = DataLoader(ds(), batch_size=args.batch_size)
    for x in loader:
        net(x).backward()

if __name__ == '__main__':
    main()
";
    check_script(text, "train.py:6 8");
    let big = |entry: &mut Entry| entry.arguments = vec!["--big".to_owned()];
    check_with(&[("train.py", text)], big, "train.py:10 128");
}

#[test]
fn configured_arguments_take_precedence() {
    let text = format!(
        "{PARSER}parser.add_argument('--batch-size', '-b', type=int, default=32)\nargs = parser.parse_args()\nloader = DataLoader(ds, args.batch_size)\n{LOOP}"
    );
    for arguments in [
        &["--batch-size", "64"][..],
        &["--batch-size=64"],
        &["-b", "64"],
        &["-b64"],
        &["--batch", "64"],
    ] {
        let set = |entry: &mut Entry| {
            entry.arguments = arguments.iter().map(|one| (*one).to_owned()).collect()
        };
        check_refused_with(&[("train.py", &text)], set, "to 64: change it there");
    }
    let other = |entry: &mut Entry| entry.arguments = vec!["--epochs".to_owned(), "1".to_owned()];
    check_with(&[("train.py", &text)], other, "train.py:3 32");
}

#[test]
fn slices_of_a_tensor() {
    check_script(
        "bs = 64\nfor epoch in range(2):\n    for i in range((n - 1) // bs + 1):\n        xb = x_train[i * bs : i * bs + bs]\n        loss_func(model(xb)).backward()\n",
        "train.py:1 64",
    );
    check_script(
        "batch_size = 16\nfor i in range(0, len(X), batch_size):\n    loss(model(X[i:i + batch_size])).backward()\n",
        "train.py:1 16",
    );
}

#[test]
fn custom_loader_class() {
    let text = "class DataLoaderLite:
    def __init__(self, B, T):
        self.B, self.T = B, T
    def next_batch(self):
        return self.tokens[: self.B * self.T], 0
train_loader = DataLoaderLite(B=16, T=1024)
for step in range(50):
    x, y = train_loader.next_batch()
    logits, loss = model(x, y)
    loss.backward()
    optimizer.step()
";
    check_script(text, "train.py:6 16");
}

#[test]
fn functions_that_create_loaders() {
    let text = "from torch.utils.data import DataLoader
def get_loaders(root, batch_size: int = 32, workers=2):
    train = DataLoader(A(root), batch_size=batch_size, shuffle=True)
    val = DataLoader(B(root), batch_size=batch_size * 2)
    return train, val
train_loader, val_loader = get_loaders('data')
for epoch in range(3):
    for x, y in tqdm(train_loader, desc='train'):
        f(x).backward()
";
    check_script(text, "train.py:2 32");
    check_script(&text.replace("get_loaders('data')", "get_loaders('data', 64)"), "train.py:6 64");
    check_script(
        &text.replace("get_loaders('data')", "get_loaders('data', workers=4, batch_size=48)"),
        "train.py:6 48",
    );
}

#[test]
fn generators() {
    check(
        &[
            (
                "train.py",
                "from corpus import batches\ndef train(config, steps, batch_size):\n    for step, (x, y) in enumerate(batches(config, batch_size, steps)):\n        model(x, y).backward()\ndef main():\n    import argparse\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--batch-size', type=int, default=8)\n    args = parser.parse_args()\n    train(Config(), 9, args.batch_size)\nmain()\n",
            ),
            (
                "corpus.py",
                "import torch\ndef batches(config, batch_size: int, steps: int):\n    for _ in range(steps):\n        yield torch.randint(9, (batch_size, 4)), 1\n",
            ),
        ],
        "train.py:8 8",
    );
    check_script(
        "def cycle(loader):\n    while True:\n        for batch in loader:\n            yield batch\nloader = cycle(DataLoader(ds, batch_size=6))\nfor step in range(9):\n    x = next(loader)\n    f(x).backward()\n",
        "train.py:5 6",
    );
}

#[test]
fn class_that_trains() {
    let text = "from torch.utils.data import DataLoader
class Trainer:
    def __init__(self, model, batch_size=16):
        self.model = model
        self.batch_size = batch_size
        self.loader = self.make_loader()
    def make_loader(self):
        return DataLoader(self.data, self.batch_size)
    def step(self, x):
        self.model(x).backward()
        self.optimizer.step()
    def fit(self):
        for x in self.loader:
            self.step(x)
Trainer(net).fit()
";
    check_script(text, "train.py:3 16");
    check_script(&text.replace("Trainer(net)", "Trainer(net, batch_size=20)"), "train.py:15 20");
}

#[test]
fn dataclasses() {
    let text = "from dataclasses import dataclass, field
@dataclass
class Config:
    lr: float = 0.1
    batch_size: int = 32
    seed: int = 0
";
    let rest = "def train(cfg: Config):\n    loader = DataLoader(ds, batch_size=cfg.batch_size)\n    for x in loader:\n        f(x).backward()\n";
    check_script(&format!("{text}{rest}train(Config())\n"), "train.py:5 32");
    check_script(&format!("{text}{rest}train(Config(batch_size=64))\n"), "train.py:11 64");
    check_script(&format!("{text}{rest}train(Config(0.1, 48))\n"), "train.py:11 48");
    check_script(&format!("{text}{rest}import tyro\ntrain(tyro.cli(Config))\n"), "train.py:5 32");
    check_script(&format!("{text}{rest}tyro.cli(train)\n"), "train.py:5 32");
    check_script(
        &format!(
            "{}{rest}train(Config())\n",
            text.replace("int = 32", "int = field(default=32, metadata={'help': 'x'})")
        ),
        "train.py:5 32",
    );
    let nested = "@dataclass\nclass Data:\n    batch_size: int = 24\n@dataclass\nclass Config:\n    data: Data = field(default_factory=Data)\ncfg = Config()\nloader = DataLoader(ds, batch_size=cfg.data.batch_size)\n";
    check_script(&format!("{nested}{LOOP}"), "train.py:3 24");
    let named = "class Config(NamedTuple):\n    batch_size: int = 24\ncfg = Config()\nloader = DataLoader(ds, cfg.batch_size)\n";
    check_script(&format!("{named}{LOOP}"), "train.py:2 24");
    let pydantic = "class Settings(BaseSettings):\n    batch_size: int = Field(24, ge=1)\ns = Settings()\nloader = DataLoader(ds, s.batch_size)\n";
    check_script(&format!("{pydantic}{LOOP}"), "train.py:2 24");
}

#[test]
fn command_line_libraries() {
    let click = "@click.command()\n@click.option('--lr', default=0.1)\n@click.option('--batch-size', '-b', default=32, show_default=True)\ndef main(lr, batch_size):\n    for x in DataLoader(ds, batch_size=batch_size):\n        f(x).backward()\nmain()\n";
    check_script(click, "train.py:3 32");
    let typer = "def main(lr: float = 0.1, batch_size: int = typer.Option(32, help='b')):\n    for x in DataLoader(ds, batch_size=batch_size):\n        f(x).backward()\ntyper.run(main)\n";
    check_script(typer, "train.py:1 32");
    let fire = "def main(\n    lr=0.1,\n    batch_size: int = 32,\n):\n    for x in DataLoader(ds, batch_size=batch_size):\n        f(x).backward()\nfire.Fire(main)\n";
    check_script(fire, "train.py:3 32");
    let absl = "from absl import app, flags\nFLAGS = flags.FLAGS\nflags.DEFINE_integer('batch_size', 128, 'Batch size.')\ndef main(argv):\n    for x in DataLoader(ds, batch_size=FLAGS.batch_size):\n        f(x).backward()\napp.run(main)\n";
    check_script(absl, "train.py:3 128");
}

#[test]
fn other_files() {
    check(
        &[
            (
                "train.py",
                "from config import BATCH_SIZE\nfrom data import make_loader\nloader = make_loader(BATCH_SIZE)\nfor x in loader:\n    f(x).backward()\n",
            ),
            ("config.py", "LR = 1\nBATCH_SIZE = 96\n"),
            (
                "data.py",
                "from torch.utils.data import DataLoader\ndef make_loader(n):\n    return DataLoader(D(), batch_size=n, num_workers=2)\n",
            ),
        ],
        "config.py:2 96",
    );
    check(
        &[
            (
                "src/pkg/train.py",
                "from . import config as cfg\nfrom .engine import train_one_epoch\nloader = DataLoader(d, cfg.batch_size)\nfor epoch in range(3):\n    train_one_epoch(model, loader, optimizer)\n",
            ),
            ("src/pkg/config.py", "batch_size = 96\n"),
            (
                "src/pkg/engine.py",
                "def train_one_epoch(model, data_loader, optimizer):\n    for x in metric_logger.log_every(data_loader, 10, 'x'):\n        model(x).backward()\n        optimizer.step()\n",
            ),
            ("src/pkg/__init__.py", ""),
        ],
        "src/pkg/config.py:1 96",
    );
    check(
        &[
            (
                "train.py",
                "import configs.base\nloader = DataLoader(d, batch_size=configs.base.BATCH)\nfor x in loader:\n    f(x).backward()\n",
            ),
            ("configs/base.py", "BATCH = 7\n"),
        ],
        "configs/base.py:1 7",
    );
    check(
        &[
            (
                "train.py",
                "from config import *\nloader = DataLoader(d, batch_size=batch_size)\nfor x in loader:\n    f(x).backward()\n",
            ),
            ("config.py", "batch_size = 7\n"),
        ],
        "config.py:1 7",
    );
}

#[test]
fn environment_variables() {
    with_loop(
        "import os\nloader = DataLoader(ds, int(os.environ.get('BATCH', 32)))\n",
        "train.py:4 32",
    );
    with_loop(
        "import os\nloader = DataLoader(ds, int(os.getenv('BATCH', '32')))\n",
        "train.py:4 32",
    );
    let text = "import os\nloader = DataLoader(ds, int(os.environ.get('BATCH', 32)))\n";
    let set = |entry: &mut Entry| entry.environment = vec!["BATCH".to_owned()];
    check_refused_with(
        &[("train.py", &format!("{text}{LOOP}"))],
        set,
        "which the configuration sets",
    );
    check_refused(
        &format!("import os\nloader = DataLoader(ds, int(os.environ['BATCH']))\n{LOOP}"),
        "",
    );
}

#[test]
fn providers() {
    let text = "def skyline_model_provider():\n    return m\ndef skyline_input_provider(\n    batch_size: int = 16,\n):\n    return torch.randn((batch_size, 3))\ndef skyline_iteration_provider(model):\n    def it(x):\n        model(x).backward()\n    return it\n";
    let set = |entry: &mut Entry| entry.provider = true;
    check_with(&[("p.py", text)], set, "p.py:4 16");
    check_with(&[("p.py", &text.replace("skyline", "deepview"))], set, "p.py:4 16");
    let configured = |entry: &mut Entry| {
        entry.provider = true;
        entry.configured = Some(64);
    };
    check_refused_with(&[("p.py", text)], configured, "batch_size to 64");
}

#[test]
fn synthetic_batches() {
    let text = "import torch\nbatch = 32\nx = torch.randn(batch, 10)\ny = torch.randint(0, 3, (batch,))\nfor _ in range(9):\n    loss = f(model(x), y)\n    loss.backward()\n    opt.step()\n";
    check_script(text, "train.py:2 32");
    let literal = "import torch\nx = torch.randn(32, 10, device='cpu')\nfor _ in range(9):\n    model(x).sum().backward()\n    opt.step()\n";
    check_script(literal, "train.py:2 32");
    let inside = "import torch\nfor _ in range(9):\n    x = torch.randn(16, 10)\n    loss = model(x).sum()\n    loss.backward()\n    opt.step()\n";
    check_script(inside, "train.py:3 16");
}

#[test]
fn last_run_decides_between_two_numbers() {
    let text = "if torch.cuda.is_available():\n    batch_size = 128\nelse:\n    batch_size = 16\nloader = DataLoader(ds, batch_size)\n";
    let text = format!("{text}{LOOP}");
    let ran = |measured| move |entry: &mut Entry| entry.measured = Some(measured);
    check_with(&[("train.py", &text)], ran(16), "train.py:4 16");
    check_with(&[("train.py", &text)], ran(128), "train.py:2 128");
    check_refused(&text, "128 in train.py:2");
    // The current text has another number, which has not run.
    let site = check_with(&[("train.py", &text)], ran(16), "train.py:4 16");
    let later = text.replace("16", "20");
    let again = move |entry: &mut Entry| entry.chosen = Some(site.choice);
    check_with(&[("train.py", &later)], again, "train.py:4 20");
    let either = format!(
        "batch_size = 64 if torch.cuda.is_available() else 8\nloader = DataLoader(ds, batch_size)\n{LOOP}"
    );
    check_with(&[("train.py", &either)], ran(8), "train.py:1 8");
}

#[test]
fn accumulated_batch_is_a_multiple() {
    let text = format!("loader = DataLoader(ds, batch_size=8)\n{LOOP}");
    check_with(&[("train.py", &text)], |entry| entry.measured = Some(32), "train.py:1 8");
    check_refused_with(
        &[("train.py", &text)],
        |entry| entry.measured = Some(12),
        "used batch size 12",
    );
}

#[test]
fn one_of_several_loaders() {
    let text = "train_loader = DataLoader(a, batch_size=32)\nval_loader = DataLoader(b, batch_size=64)\nloaders = {'train': train_loader, 'val': val_loader}\nfor phase in ['train', 'val']:\n    for x in loaders['train']:\n        f(x).backward()\n";
    check_script(text, "train.py:1 32");
    let zipped = "a = DataLoader(d1, batch_size=8)\nb = DataLoader(d2, batch_size=8)\nfor x, y in zip(a, b):\n    f(x, y).backward()\n";
    check_script(zipped, "train.py:1 8");
}
