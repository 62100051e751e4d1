//! Batches copied on a stream of their own: a generator around the loader.

use expect_test::expect;

use super::*;

const PREFETCH: EditKind = EditKind::Prefetch;

#[test]
fn a_plain_script() {
    check(
        PREFETCH,
        PLAIN,
        expect![[r#"
        +import itertools
        +
         import torch
        …
         device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        -loader = DataLoader(data, batch_size=32, shuffle=True)
        +loader = DataLoader(data, batch_size=32, shuffle=True, pin_memory=True)
         model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
        …

        +
        +def prefetched(loader, device):
        +    """Yields batches on the device. A GPU copies the next one while it computes."""
        +    device = torch.device(device)
        +    if device.type != 'cuda':
        +        for batch in loader:
        +            yield [value.to(device) for value in batch]
        +        return
        +    stream = torch.cuda.Stream(device)
        +    upcoming = None
        +    for batch in itertools.chain(loader, [None]):
        +        copied, upcoming = upcoming, None
        +        if copied is not None:
        +            current = torch.cuda.current_stream(device)
        +            current.wait_stream(stream)
        +            for value in copied:
        +                value.record_stream(current)
        +        if batch is not None:
        +            with torch.cuda.stream(stream):
        +                upcoming = [value.to(device, non_blocking=True) for value in batch]
        +        if copied is not None:
        +            yield copied
        +
        +
         for epoch in range(3):
        -    for x, y in loader:
        -        x, y = x.to(device), y.to(device)
        +    for x, y in prefetched(loader, device):
                 # forward
    "#]],
    );
}

/// The loader is passed to a function, and enumerated.
#[test]
fn in_functions() {
    let text = "\
\"\"\"Trains.\"\"\"
import torch
from torch.utils.data import DataLoader

def made(data):
  return DataLoader(data, 8, pin_memory=True)


# One epoch.
@timed
def train(net, loader, device):
  for step, (x, y) in enumerate(loader, 1):
    x = x.to(device, non_blocking=True)
    print(step)
    y = y.to(device, non_blocking=True)  # labels

    loss = (net(x) - y).square().mean()
    loss.backward()
    opt.step()


train(net, made(data), torch.device('cuda:0'))
";
    check(
        PREFETCH,
        text,
        expect![[r#"
         """Trains."""
        +import itertools
        +
         import torch
        …

        +def prefetched(loader, device):
        +  """Yields batches on the device. A GPU copies the next one while it computes."""
        +  device = torch.device(device)
        +  if device.type != "cuda":
        +    for batch in loader:
        +      yield [value.to(device) for value in batch]
        +    return
        +  stream = torch.cuda.Stream(device)
        +  upcoming = None
        +  for batch in itertools.chain(loader, [None]):
        +    copied, upcoming = upcoming, None
        +    if copied is not None:
        +      current = torch.cuda.current_stream(device)
        +      current.wait_stream(stream)
        +      for value in copied:
        +        value.record_stream(current)
        +    if batch is not None:
        +      with torch.cuda.stream(stream):
        +        upcoming = [value.to(device, non_blocking=True) for value in batch]
        +    if copied is not None:
        +      yield copied
        +
        +
         # One epoch.
        …
         def train(net, loader, device):
        -  for step, (x, y) in enumerate(loader, 1):
        -    x = x.to(device, non_blocking=True)
        +  for step, (x, y) in enumerate(prefetched(loader, device), 1):
             print(step)
        -    y = y.to(device, non_blocking=True)  # labels

    "#]],
    );
}

#[test]
fn in_methods_and_with_cuda() {
    let text = "\
import torch as th
from torch import nn
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, data):
        self.loader = DataLoader(data)
        self.model = nn.Linear(8, 2).cuda()

    def fit(self):
        for (x,) in self.loader:

            x = x.cuda()

            loss = self.model(x).sum()
            loss.backward()
            self.opt.step()


Trainer(data).fit()
";
    check(
        PREFETCH,
        text,
        expect![[r#"
        +import itertools
        +
         import torch as th
        …

        +def prefetched(loader, device):
        +    """Yields batches on the device. A GPU copies the next one while it computes."""
        +    device = th.device(device)
        +    if device.type != "cuda":
        +        for batch in loader:
        +            yield [value.to(device) for value in batch]
        +        return
        +    stream = th.cuda.Stream(device)
        +    upcoming = None
        +    for batch in itertools.chain(loader, [None]):
        +        copied, upcoming = upcoming, None
        +        if copied is not None:
        +            current = th.cuda.current_stream(device)
        +            current.wait_stream(stream)
        +            for value in copied:
        +                value.record_stream(current)
        +        if batch is not None:
        +            with th.cuda.stream(stream):
        +                upcoming = [value.to(device, non_blocking=True) for value in batch]
        +        if copied is not None:
        +            yield copied
        +
        +
         class Trainer:
             def __init__(self, data):
        -        self.loader = DataLoader(data)
        +        self.loader = DataLoader(data, pin_memory=True)
                 self.model = nn.Linear(8, 2).cuda()
        …
             def fit(self):
        -        for (x,) in self.loader:
        -
        -            x = x.cuda()
        +        for (x,) in prefetched(self.loader, "cuda"):

    "#]],
    );
}

/// Both loops use one definition. The validation loop stays.
#[test]
fn two_loops_in_a_file() {
    let second = PLAIN.split("\nfor epoch").nth(1).expect("a loop");
    let validation = "with torch.no_grad():\n    for x, y in loader:\n        x, y = x.to(device), y.to(device)\n        model(x)\n";
    let text = format!("{PLAIN}\nfor epoch{second}\n{validation}");
    check(
        PREFETCH,
        &text,
        expect![[r#"
            +import itertools
            +
             import torch
            …
             device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
            -loader = DataLoader(data, batch_size=32, shuffle=True)
            +loader = DataLoader(data, batch_size=32, shuffle=True, pin_memory=True)
             model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.LazyLinear(10)).to(device)
            …

            +
            +def prefetched(loader, device):
            +    """Yields batches on the device. A GPU copies the next one while it computes."""
            +    device = torch.device(device)
            +    if device.type != 'cuda':
            +        for batch in loader:
            +            yield [value.to(device) for value in batch]
            +        return
            +    stream = torch.cuda.Stream(device)
            +    upcoming = None
            +    for batch in itertools.chain(loader, [None]):
            +        copied, upcoming = upcoming, None
            +        if copied is not None:
            +            current = torch.cuda.current_stream(device)
            +            current.wait_stream(stream)
            +            for value in copied:
            +                value.record_stream(current)
            +        if batch is not None:
            +            with torch.cuda.stream(stream):
            +                upcoming = [value.to(device, non_blocking=True) for value in batch]
            +        if copied is not None:
            +            yield copied
            +
            +
             for epoch in range(3):
            -    for x, y in loader:
            -        x, y = x.to(device), y.to(device)
            +    for x, y in prefetched(loader, device):
                     # forward
            …
             for epoch in range(3):
            -    for x, y in loader:
            -        x, y = x.to(device), y.to(device)
            +    for x, y in prefetched(loader, device):
                     # forward
        "#]],
    );
}

#[test]
fn refusals() {
    let with = |from: &str, to: &str| {
        let text = PLAIN.replace(from, to);
        assert_ne!(text, PLAIN, "{from}");
        text
    };
    let copy = "x, y = x.to(device), y.to(device)";
    let texts = [
        with("for x, y in loader", "for batch in loader").replace(copy, "x, y = batch"),
        with("for x, y in loader", "for x, y in tqdm(loader)"),
        with("for x, y in loader", "for x, (y, z) in loader"),
        with("for x, y in loader", "for pair in enumerate(loader)"),
        with("    for x, y in loader:", "    while True:\n        x, y = next(iter(loader))"),
        with("DataLoader(data", "Batches(data"),
        with("loader = DataLoader(", "loader = CudaBatches(data)\nother = DataLoader("),
        with(copy, "x, y = x.to(device), y.to('cuda:1')"),
        with(copy, "x = x.to(device)"),
        with(copy, "inputs = x.to(device)"),
        with(copy, "x, y = x.to(device, torch.float16), y.to(device)"),
        with(copy, "x, y = x.to(device).half(), y.to(device)"),
        with(copy, "x, y = y.to(device), x.to(device)").replace("x, y = y", "y, x = x"),
        with(copy, "x = x / 255\n        x, y = x.to(device), y.to(device)"),
        with(copy, "x = x.to(device); y = y.to(device)"),
        with(copy, "device = devices[epoch]\n        x, y = x.to(device), y.to(device)"),
        with(copy, "if cuda:\n            x, y = x.to(device), y.to(device)"),
        with("shuffle=True", "**options"),
        with("criterion = ", "prefetched = True\ncriterion = "),
        with("criterion = ", "graph = torch.cuda.CUDAGraph()\ncriterion = "),
        with("criterion = ", "stream.wait_stream(other)\ncriterion = "),
    ];
    let reasons = texts.iter().map(|text| {
        let (texts, entry) = project(&[("train.py", text)]);
        match rewrite(&texts, &entry, &request_for(PREFETCH)) {
            Ok(rewrite) => format!("made {rewrite:#?} of {text}"),
            Err(Refusal::Done(why)) => format!("done: {why}\n"),
            Err(Refusal::NotUnderstood(why)) => format!("{why}\n"),
        }
    });
    let expected = expect![[r#"
        train.py:12 does not take the batch apart into variables, such as `x, y`
        train.py:12 iterates over `tqdm(loader)`, which is not a plain DataLoader
        train.py:12 does not take the batch apart into variables, such as `x, y`
        train.py:12 takes the result of enumerate as one value
        train.py:20 is not in a `for` loop over the DataLoader in the same function
        no DataLoader was found in the program
        train.py:13 iterates over `loader`, which is not known to be a DataLoader
        train.py:13 copies a part of the batch to another device
        train.py:17 uses `y` before a statement `y = y.to(device)` copies it
        train.py:13 uses `x` before a statement `x = x.to(device)` copies it
        train.py:13 uses `x` before a statement `x = x.to(device)` copies it
        train.py:13 uses `x` before a statement `x = x.to(device)` copies it
        train.py:13 uses `x` before a statement `x = x.to(device)` copies it
        train.py:13 uses `x` before a statement `x = x.to(device)` copies it
        train.py:13 has several statements on one line: put each on its own line
        train.py:14 copies to a device that the loop assigns (`device`)
        train.py:13 uses `x` before a statement `x = x.to(device)` copies it
        train.py:6 passes starred arguments to the DataLoader, which may already set pin_memory
        train.py:13 would be in a file that uses the name `prefetched` for something else
        train.py:8 captures a CUDA graph, which reads its input at a fixed address
        done: train.py:8 already waits for copies on another stream
    "#]];
    expected.assert_eq(&reasons.collect::<String>());
}
