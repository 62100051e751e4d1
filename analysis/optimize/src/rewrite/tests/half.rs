//! Autocast and the gradient scaler.

use expect_test::expect;

use super::*;

const BF16: EditKind = EditKind::AutocastBFloat16;
const FP16: EditKind = EditKind::AutocastFloat16;

#[test]
fn a_plain_script() {
    check(
        BF16,
        PLAIN,
        expect![[r#"
                 # forward
        -        out = model(x)
        +        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        +            out = model(x)

        -        loss = criterion(out, y)  # the loss
        +            loss = criterion(out, y)  # the loss
                 optimizer.zero_grad()
    "#]],
    );
    check(
        FP16,
        PLAIN,
        expect![[r#"
         optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        +scaler = torch.amp.GradScaler(device.type)

        …
                 # forward
        -        out = model(x)
        +        with torch.autocast(device_type=device.type, dtype=torch.float16):
        +            out = model(x)

        -        loss = criterion(out, y)  # the loss
        +            loss = criterion(out, y)  # the loss
                 optimizer.zero_grad()
        -        loss.backward()
        -        optimizer.step()
        +        scaler.scale(loss).backward()
        +        scaler.step(optimizer)
        +        scaler.update()
             print(epoch, loss.item())
    "#]],
    );
}

/// Clipping needs unscaled gradients, and accumulation steps only sometimes.
#[test]
fn clipping_and_accumulation() {
    let script = "\
import torch, argparse
def main():
    args = argparse.ArgumentParser().parse_args()
    model = Net().to(args.device)
    opt = torch.optim.AdamW(model.parameters())
    for i, batch in enumerate(loader):
        batch = {k: v.to(args.device) for k, v in batch.items()}
        loss = model(**batch).loss / 4
        (loss * 2).backward()
        if i % 4 == 3:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            opt.zero_grad()
main()
";
    check(
        BF16,
        script,
        expect![[r#"
                 batch = {k: v.to(args.device) for k, v in batch.items()}
        -        loss = model(**batch).loss / 4
        +        with torch.autocast(device_type=torch.device(args.device).type, dtype=torch.bfloat16):
        +            loss = model(**batch).loss / 4
                 (loss * 2).backward()
    "#]],
    );
    check(
        FP16,
        script,
        expect![[r#"
             opt = torch.optim.AdamW(model.parameters())
        +    scaler = torch.amp.GradScaler(torch.device(args.device).type)
             for i, batch in enumerate(loader):
                 batch = {k: v.to(args.device) for k, v in batch.items()}
        -        loss = model(**batch).loss / 4
        -        (loss * 2).backward()
        +        with torch.autocast(device_type=torch.device(args.device).type, dtype=torch.float16):
        +            loss = model(**batch).loss / 4
        +        scaler.scale(loss * 2).backward()
                 if i % 4 == 3:
        +            scaler.unscale_(opt)
                     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        -            opt.step()
        +            scaler.step(opt)
        +            scaler.update()
                     sched.step()
    "#]],
    );
}

#[test]
fn a_function_that_takes_the_optimizer_as_a_parameter() {
    let files = [
        (
            "train.py",
            "import torch\nfrom engine import run\n\ndef main():\n    device = torch.device('cuda')\n    model = make().to(device)\n    optimizer = torch.optim.SGD(model.parameters(), 0.1)\n    for epoch in range(9):\n        run(model, loader, optimizer, device)\n\nif __name__ == '__main__':\n    main()\n",
        ),
        (
            "engine.py",
            "from torch.nn import functional as F\n\n\ndef run(model, loader, optimizer, device):\n    model.train()\n    for x, y in loader:\n        x, y = x.to(device), y.to(device)\n        optimizer.zero_grad()\n        loss = F.cross_entropy(model(x), y)\n        loss.backward()\n        optimizer.step()\n",
        ),
    ];
    check_files(
        &files,
        request_for(BF16),
        expect![[r#"
        == engine.py
        +import torch
         from torch.nn import functional as F
        …
                 optimizer.zero_grad()
        -        loss = F.cross_entropy(model(x), y)
        +        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
        +            loss = F.cross_entropy(model(x), y)
                 loss.backward()
    "#]],
    );
    check_files(
        &files,
        request_for(FP16),
        expect![[r#"
        == train.py
             optimizer = torch.optim.SGD(model.parameters(), 0.1)
        +    scaler = torch.amp.GradScaler(device.type)
             for epoch in range(9):
        -        run(model, loader, optimizer, device)
        +        run(model, loader, optimizer, device, scaler)

        == engine.py
        +import torch
         from torch.nn import functional as F
        …

        -def run(model, loader, optimizer, device):
        +def run(model, loader, optimizer, device, scaler):
             model.train()
        …
                 optimizer.zero_grad()
        -        loss = F.cross_entropy(model(x), y)
        -        loss.backward()
        -        optimizer.step()
        +        with torch.autocast(device_type=device.type, dtype=torch.float16):
        +            loss = F.cross_entropy(model(x), y)
        +        scaler.scale(loss).backward()
        +        scaler.step(optimizer)
        +        scaler.update()

    "#]],
    );
}

#[test]
fn a_class() {
    let script = "\
import torch

class Trainer:
    def __init__(self, model):
        self.device = 'cuda:0'
        self.model = model.to(self.device)
        self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def losses(self, x, y):
        return self.criterion(self.model(x.to(self.device)), y)

    def fit(self, loader):
        for x, y in loader:
            self.optim.zero_grad()
            loss = self.losses(x, y)
            loss.backward()
            self.optim.step()

Trainer(Net()).fit(loader)
";
    check(
        BF16,
        script,
        expect![[r#"
                     self.optim.zero_grad()
        -            loss = self.losses(x, y)
        +            with torch.autocast(device_type=torch.device(self.device).type, dtype=torch.bfloat16):
        +                loss = self.losses(x, y)
                     loss.backward()
    "#]],
    );
    check(
        FP16,
        script,
        expect![[r#"
                 self.optim = torch.optim.SGD(self.model.parameters(), lr=0.1)
        +        self.scaler = torch.amp.GradScaler(torch.device(self.device).type)

        …
                     self.optim.zero_grad()
        -            loss = self.losses(x, y)
        -            loss.backward()
        -            self.optim.step()
        +            with torch.autocast(device_type=torch.device(self.device).type, dtype=torch.float16):
        +                loss = self.losses(x, y)
        +            self.scaler.scale(loss).backward()
        +            self.scaler.step(self.optim)
        +            self.scaler.update()

    "#]],
    );
}

#[test]
fn two_networks() {
    let script = "\
import torch
netG, netD = Generator().cuda(), Discriminator().cuda()
optG = torch.optim.Adam(netG.parameters())
optD = torch.optim.Adam(netD.parameters())
for real in loader:
    real = real.cuda()
    optD.zero_grad()
    real_score = netD(real)
    fake = netG(torch.randn(8, 100).cuda())
    lossD = bce(real_score, 1) + bce(netD(fake.detach()), 0)
    lossD.backward()
    optD.step()
    optG.zero_grad()
    lossG = bce(netD(fake), 1)
    lossG.backward()
    optG.step()
";
    check(
        FP16,
        script,
        expect![[r#"
         optD = torch.optim.Adam(netD.parameters())
        +scaler = torch.amp.GradScaler("cuda")
         for real in loader:
        …
             optD.zero_grad()
        -    real_score = netD(real)
        -    fake = netG(torch.randn(8, 100).cuda())
        -    lossD = bce(real_score, 1) + bce(netD(fake.detach()), 0)
        -    lossD.backward()
        -    optD.step()
        +    with torch.autocast(device_type="cuda", dtype=torch.float16):
        +        real_score = netD(real)
        +        fake = netG(torch.randn(8, 100).cuda())
        +        lossD = bce(real_score, 1) + bce(netD(fake.detach()), 0)
        +    scaler.scale(lossD).backward()
        +    scaler.step(optD)
             optG.zero_grad()
        -    lossG = bce(netD(fake), 1)
        -    lossG.backward()
        -    optG.step()
        +    with torch.autocast(device_type="cuda", dtype=torch.float16):
        +        lossG = bce(netD(fake), 1)
        +    scaler.scale(lossG).backward()
        +    scaler.step(optG)
        +    scaler.update()

    "#]],
    );
}

/// Blocks around the backward pass, tabs, Windows line endings, and non-Latin characters.
#[test]
fn blocks_tabs_and_line_ends() {
    let script = "import torch\r\nmodel = torch.nn.Linear(1, 1)\r\nopt = torch.optim.SGD(model.parameters(), 1)\r\nfor x in données:\r\n\twith torch.set_grad_enabled(train):\r\n\t\tausgabe = model(\r\n\t\t\tx, # größe\r\n\t\t)\r\n\t\ttext = '''a\r\nb'''\r\n\t\tloss = ausgabe.sum()\r\n\t\tif train:\r\n\t\t\tloss.backward()\r\n\t\t\topt.step()\r\n";
    check(
        BF16,
        script,
        expect![[r#"
         	with torch.set_grad_enabled(train):␍
        -		ausgabe = model(␍
        -			x, # größe␍
        -		)␍
        -		text = '''a␍
        +		with torch.autocast(device_type='cpu', dtype=torch.bfloat16):␍
        +			ausgabe = model(␍
        +				x, # größe␍
        +			)␍
        +			text = '''a␍
         b'''␍
        -		loss = ausgabe.sum()␍
        +			loss = ausgabe.sum()␍
         		if train:␍
    "#]],
    );
    check(
        FP16,
        script,
        expect![[r#"
         opt = torch.optim.SGD(model.parameters(), 1)␍
        +scaler = torch.amp.GradScaler('cpu')␍
         for x in données:␍
         	with torch.set_grad_enabled(train):␍
        -		ausgabe = model(␍
        -			x, # größe␍
        -		)␍
        -		text = '''a␍
        +		with torch.autocast(device_type='cpu', dtype=torch.float16):␍
        +			ausgabe = model(␍
        +				x, # größe␍
        +			)␍
        +			text = '''a␍
         b'''␍
        -		loss = ausgabe.sum()␍
        +			loss = ausgabe.sum()␍
         		if train:␍
        -			loss.backward()␍
        -			opt.step()␍
        +			scaler.scale(loss).backward()␍
        +			scaler.step(opt)␍
        +			scaler.update()␍

    "#]],
    );
}

#[test]
fn a_loss_without_a_name() {
    let script = "import torch\nmodel = torch.nn.Linear(8, 8)\nopt = torch.optim.SGD(model.parameters(), 1)\nfor x in loader:\n    opt.zero_grad()\n    model(x).square().mean().backward()\n    opt.step()\n";
    check(
        BF16,
        script,
        expect![[r#"
             opt.zero_grad()
        -    model(x).square().mean().backward()
        +    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        +        loss = model(x).square().mean()
        +    loss.backward()
             opt.step()
    "#]],
    );
    check(
        FP16,
        script,
        expect![[r#"
         opt = torch.optim.SGD(model.parameters(), 1)
        +scaler = torch.amp.GradScaler("cpu")
         for x in loader:
             opt.zero_grad()
        -    model(x).square().mean().backward()
        -    opt.step()
        +    with torch.autocast(device_type="cpu", dtype=torch.float16):
        +        loss = model(x).square().mean()
        +    scaler.scale(loss).backward()
        +    scaler.step(opt)
        +    scaler.update()

    "#]],
    );
}

#[test]
fn a_provider() {
    let script = include_str!("../../../../../demo-projects/resnet/skyline_provider.py");
    check(
        FP16,
        script,
        expect![[r#"
             optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        +    scaler = torch.amp.GradScaler(DEVICE.type)

        …
                 optimizer.zero_grad()
        -        loss = criterion(model(images), labels)
        -        loss.backward()
        -        optimizer.step()
        +        with torch.autocast(device_type=DEVICE.type, dtype=torch.float16):
        +            loss = criterion(model(images), labels)
        +        scaler.scale(loss).backward()
        +        scaler.step(optimizer)
        +        scaler.update()

    "#]],
    );
}

#[test]
fn a_closure_and_a_loop_over_time() {
    let script = "\
import torch
model = torch.nn.LSTMCell(4, 4)
opt = torch.optim.LBFGS(model.parameters())
for sequence in sequences:
    def closure():
        opt.zero_grad()
        loss, state = 0, None
        for x in sequence:
            state = model(x, state)
            loss += state[0].sum()
        loss.backward()
        return loss
    opt.step(closure)
";
    check(
        BF16,
        script,
        expect![[r#"
                 loss, state = 0, None
        -        for x in sequence:
        -            state = model(x, state)
        -            loss += state[0].sum()
        +        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        +            for x in sequence:
        +                state = model(x, state)
        +                loss += state[0].sum()
                 loss.backward()
    "#]],
    );
    check_refused(
        FP16,
        script,
        expect!["train.py:13 steps with a closure, which gradient scalers do not support"],
    );
}
