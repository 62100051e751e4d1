//! The edits of every demo project, or why they are refused. It is one table of snapshots by edit,
//! so the file is not split.

use expect_test::{Expect, expect};

use super::*;

macro_rules! demo {
    ($folder:literal: $($file:literal),+) => {
        &[$(($file, include_str!(concat!("../../../../../demo-projects/", $folder, "/", $file)))),+]
    };
}

/// The projects. The first file of each is the entry.
pub(in super::super) const ALL: [&[(&str, &str)]; 7] = [
    demo!("bert": "train.py", "model.py", "data.py"),
    demo!("dcgan": "train.py", "model.py"),
    demo!("gpt": "train.py", "model.py", "corpus.py"),
    demo!("ncf": "train.py", "model.py", "ratings.py"),
    demo!("resnet": "train.py", "model.py", "data.py"),
    demo!("resnet": "skyline_provider.py", "model.py"),
    demo!("seq2seq": "train.py", "model.py", "data.py"),
];

#[track_caller]
fn check_demo(kind: EditKind, expected: Expect) {
    let mut shown = String::new();
    for files in ALL {
        let (texts, entry) = project(files);
        let request = request_for(kind);
        let name = files[1].1.lines().next().unwrap_or_default();
        shown.push_str(&format!("#### {} {}\n", files[0].0, name));
        match rewrite(&texts, &entry, &request) {
            Ok(_) => {
                let after = edited(files, request);
                for (path, before) in files {
                    shown.push_str(&super::changed_lines(before, &after[*path]));
                }
            }
            Err(refusal) => shown.push_str(&format!("{refusal:?}\n")),
        }
    }
    expected.assert_eq(&shown);
}

#[test]
fn bfloat16() {
    check_demo(
        EditKind::AutocastBFloat16,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
                         for number, batch in enumerate(loader, start=1):
            -                loss = self.loss(batch) / self.accumulate
            +                with torch.autocast(device_type=self.device.type, dtype=torch.bfloat16):
            +                    loss = self.loss(batch) / self.accumulate
                             loss.backward()
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
                         noise = torch.randn(len(real), args.latent, 1, 1, device=device)
            -            fake = generator(noise)
            +            with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            +                fake = generator(noise)

            …
                         optimizer_d.zero_grad()
            -            verdict_real = discriminator(real)
            -            loss_real = criterion(verdict_real, torch.ones_like(verdict_real))
            -            verdict_fake = discriminator(fake.detach())
            -            loss_fake = criterion(verdict_fake, torch.zeros_like(verdict_fake))
            -            loss_d = loss_real + loss_fake
            +            with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            +                verdict_real = discriminator(real)
            +                loss_real = criterion(verdict_real, torch.ones_like(verdict_real))
            +                verdict_fake = discriminator(fake.detach())
            +                loss_fake = criterion(verdict_fake, torch.zeros_like(verdict_fake))
            +                loss_d = loss_real + loss_fake
                         loss_d.backward()
            …
                         optimizer_g.zero_grad()
            -            verdict = discriminator(fake)
            -            loss_g = criterion(verdict, torch.ones_like(verdict))
            +            with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            +                verdict = discriminator(fake)
            +                loss_g = criterion(verdict, torch.ones_like(verdict))
                         loss_g.backward()
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""

            -        _, loss = model(tokens, targets)
            +        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            +            _, loss = model(tokens, targets)
                     loss.backward()
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
                         user, item, label = user.to(device), item.to(device), label.to(device)
            -            loss = criterion(model(user, item), label)
            +            with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            +                loss = criterion(model(user, item), label)
                         optimizer.zero_grad()
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""

            -            logits = model(images)
            -            loss = criterion(logits, labels)
            +            with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            +                logits = model(images)
            +                loss = criterion(logits, labels)

            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
                     optimizer.zero_grad()
            -        loss = criterion(model(images), labels)
            +        with torch.autocast(device_type=DEVICE.type, dtype=torch.bfloat16):
            +            loss = criterion(model(images), labels)
                     loss.backward()
            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
                     optimizer.zero_grad()
            -        logits = model(source, target[:, :-1])
            -        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
            +        with torch.autocast(device_type=device.type, dtype=torch.bfloat16):
            +            logits = model(source, target[:, :-1])
            +            loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
                     loss.backward()
        "#####]],
    );
}

#[test]
fn float16() {
    check_demo(
        EditKind::AutocastFloat16,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
                     self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
            +        self.scaler = torch.amp.GradScaler(device.type)
                     self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, total_iters=100)
            …
                         for number, batch in enumerate(loader, start=1):
            -                loss = self.loss(batch) / self.accumulate
            -                loss.backward()
            +                with torch.autocast(device_type=self.device.type, dtype=torch.float16):
            +                    loss = self.loss(batch) / self.accumulate
            +                self.scaler.scale(loss).backward()
                             if number % self.accumulate == 0:
            -                    self.optimizer.step()
            +                    self.scaler.step(self.optimizer)
            +                    self.scaler.update()
                                 self.scheduler.step()
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
                 optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
            +    scaler = torch.amp.GradScaler(device.type)

            …
                         noise = torch.randn(len(real), args.latent, 1, 1, device=device)
            -            fake = generator(noise)
            +            with torch.autocast(device_type=device.type, dtype=torch.float16):
            +                fake = generator(noise)

            …
                         optimizer_d.zero_grad()
            -            verdict_real = discriminator(real)
            -            loss_real = criterion(verdict_real, torch.ones_like(verdict_real))
            -            verdict_fake = discriminator(fake.detach())
            -            loss_fake = criterion(verdict_fake, torch.zeros_like(verdict_fake))
            -            loss_d = loss_real + loss_fake
            -            loss_d.backward()
            -            optimizer_d.step()
            +            with torch.autocast(device_type=device.type, dtype=torch.float16):
            +                verdict_real = discriminator(real)
            +                loss_real = criterion(verdict_real, torch.ones_like(verdict_real))
            +                verdict_fake = discriminator(fake.detach())
            +                loss_fake = criterion(verdict_fake, torch.zeros_like(verdict_fake))
            +                loss_d = loss_real + loss_fake
            +            scaler.scale(loss_d).backward()
            +            scaler.step(optimizer_d)

            …
                         optimizer_g.zero_grad()
            -            verdict = discriminator(fake)
            -            loss_g = criterion(verdict, torch.ones_like(verdict))
            -            loss_g.backward()
            -            optimizer_g.step()
            +            with torch.autocast(device_type=device.type, dtype=torch.float16):
            +                verdict = discriminator(fake)
            +                loss_g = criterion(verdict, torch.ones_like(verdict))
            +            scaler.scale(loss_g).backward()
            +            scaler.step(optimizer_g)
            +            scaler.update()
                     print(f"epoch {epoch}: D {loss_d.item():.3f} G {loss_g.item():.3f}")
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
                 optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
            +    scaler = torch.amp.GradScaler(device.type)

            …

            -        _, loss = model(tokens, targets)
            -        loss.backward()
            +        with torch.autocast(device_type=device.type, dtype=torch.float16):
            +            _, loss = model(tokens, targets)
            +        scaler.scale(loss).backward()
            +        scaler.unscale_(optimizer)
                     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            -        optimizer.step()
            +        scaler.step(optimizer)
            +        scaler.update()
                     optimizer.zero_grad(set_to_none=True)
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
                 optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            +    scaler = torch.amp.GradScaler(device.type)

            …
                         user, item, label = user.to(device), item.to(device), label.to(device)
            -            loss = criterion(model(user, item), label)
            +            with torch.autocast(device_type=device.type, dtype=torch.float16):
            +                loss = criterion(model(user, item), label)
                         optimizer.zero_grad()
            -            loss.backward()
            -            optimizer.step()
            +            scaler.scale(loss).backward()
            +            scaler.step(optimizer)
            +            scaler.update()
                     print(f"epoch {epoch}: loss {loss.item():.4f}")
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
                 optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
            +    scaler = torch.amp.GradScaler(device.type)

            …

            -            logits = model(images)
            -            loss = criterion(logits, labels)
            +            with torch.autocast(device_type=device.type, dtype=torch.float16):
            +                logits = model(images)
            +                loss = criterion(logits, labels)

                         optimizer.zero_grad()
            -            loss.backward()
            -            optimizer.step()
            +            scaler.scale(loss).backward()
            +            scaler.step(optimizer)
            +            scaler.update()

            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
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

            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""

            -def train_epoch(model, loader, criterion, optimizer, device) -> float:
            +def train_epoch(model, loader, criterion, optimizer, device, scaler) -> float:
                 model.train()
            …
                     optimizer.zero_grad()
            -        logits = model(source, target[:, :-1])
            -        loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
            -        loss.backward()
            +        with torch.autocast(device_type=device.type, dtype=torch.float16):
            +            logits = model(source, target[:, :-1])
            +            loss = criterion(logits.flatten(0, 1), target[:, 1:].flatten())
            +        scaler.scale(loss).backward()
            +        scaler.unscale_(optimizer)
                     nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
            -        optimizer.step()
            +        scaler.step(optimizer)
            +        scaler.update()

            …
                 optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            +    scaler = torch.amp.GradScaler(device.type)

                 for epoch in range(args.epochs):
            -        loss = train_epoch(model, loader, criterion, optimizer, device)
            +        loss = train_epoch(model, loader, criterion, optimizer, device, scaler)
                     print(f"epoch {epoch}: loss {loss:.3f}")
        "#####]],
    );
}

#[test]
fn tf32() {
    check_demo(
        EditKind::Tf32,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""

            +torch.set_float32_matmul_precision("high")

            +
             class Trainer:
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""

            +torch.set_float32_matmul_precision("high")

            +
             def main() -> None:
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""

            +torch.set_float32_matmul_precision("high")

            +
             def learning_rate(step: int, steps: int, peak: float) -> float:
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""

            +torch.set_float32_matmul_precision("high")

            +
             def main() -> None:
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""

            +torch.set_float32_matmul_precision("high")

            +
             def parse_args() -> argparse.Namespace:
            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""

            +torch.set_float32_matmul_precision("high")
            +
             DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""

            +torch.set_float32_matmul_precision("high")

            +
             def train_epoch(model, loader, criterion, optimizer, device) -> float:
        "#####]],
    );
}

#[test]
fn fused() {
    check_demo(
        EditKind::FusedOptimizer,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
                     self.criterion = nn.CrossEntropyLoss(ignore_index=IGNORED)
            -        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
            +        self.optimizer = torch.optim.AdamW(
            +            model.parameters(),
            +            lr=1e-4,
            +            weight_decay=0.01,
            +            fused=True,
            +        )
                     self.scheduler = torch.optim.lr_scheduler.LinearLR(self.optimizer, total_iters=100)
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
                 criterion = nn.BCEWithLogitsLoss()
            -    optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
            -    optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
            +    optimizer_d = torch.optim.Adam(
            +        discriminator.parameters(),
            +        lr=2e-4,
            +        betas=(0.5, 0.999),
            +        fused=True,
            +    )
            +    optimizer_g = torch.optim.Adam(
            +        generator.parameters(),
            +        lr=2e-4,
            +        betas=(0.5, 0.999),
            +        fused=True,
            +    )

            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
                 model = GPT(config).to(device)
            -    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
            +    optimizer = torch.optim.AdamW(
            +        model.parameters(),
            +        lr=3e-4,
            +        betas=(0.9, 0.95),
            +        fused=True,
            +    )

            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
                 criterion = nn.BCEWithLogitsLoss()
            -    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            +    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
                 criterion = nn.CrossEntropyLoss()
            -    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
            +    optimizer = torch.optim.SGD(
            +        model.parameters(),
            +        lr=args.lr,
            +        momentum=0.9,
            +        weight_decay=1e-4,
            +        fused=True,
            +    )

            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
                 criterion = nn.CrossEntropyLoss()
            -    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            +    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)

            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
                 criterion = nn.CrossEntropyLoss(ignore_index=PAD)
            -    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            +    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

        "#####]],
    );
}

#[test]
fn compile() {
    check_demo(
        EditKind::Compile,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
                     self.model = model.to(device)
            +        self.model = torch.compile(self.model)
                     self.device = device
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
                 generator = Generator(args.latent, args.features).to(device)
            +    generator = torch.compile(generator)
                 discriminator = Discriminator(args.features).to(device)
            +    discriminator = torch.compile(discriminator)
                 generator.apply(weights_init)
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
                 model = GPT(config).to(device)
            +    model = torch.compile(model)
                 optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95))
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
                 model = NeuMF(users, items).to(device)
            +    model = torch.compile(model)
                 criterion = nn.BCEWithLogitsLoss()
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
                 model = resnet50(num_classes=1000).to(device)
            +    model = torch.compile(model)
                 criterion = nn.CrossEntropyLoss()
            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
             def skyline_model_provider():
            -    return resnet50().to(DEVICE).train()
            +    return torch.compile(resnet50().to(DEVICE).train())

            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
                 model = Seq2Seq(vocab_size, width).to(device)
            +    model = torch.compile(model)
                 criterion = nn.CrossEntropyLoss(ignore_index=PAD)
        "#####]],
    );
}

#[test]
fn channels_last() {
    check_demo(
        EditKind::ChannelsLast,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
            NotUnderstood("no 2D convolution (Conv2d) was found in the program")
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""

            -    generator = Generator(args.latent, args.features).to(device)
            -    discriminator = Discriminator(args.features).to(device)
            +    generator = Generator(args.latent, args.features).to(device, memory_format=torch.channels_last)
            +    discriminator = Discriminator(args.features).to(device, memory_format=torch.channels_last)
                 generator.apply(weights_init)
            …
                     for (real,) in loader:
            -            real = real.to(device)
            +            real = real.to(device, memory_format=torch.channels_last)
                         noise = torch.randn(len(real), args.latent, 1, 1, device=device)
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
            NotUnderstood("no 2D convolution (Conv2d) was found in the program")
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
            NotUnderstood("no 2D convolution (Conv2d) was found in the program")
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""

            -    model = resnet50(num_classes=1000).to(device)
            +    model = resnet50(num_classes=1000).to(device, memory_format=torch.channels_last)
                 criterion = nn.CrossEntropyLoss()
            …
                     for step, (images, labels) in enumerate(loader):
            -            images = images.to(device, non_blocking=True)
            +            images = images.to(device, non_blocking=True, memory_format=torch.channels_last)
                         labels = labels.to(device, non_blocking=True)
            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
             def skyline_model_provider():
            -    return resnet50().to(DEVICE).train()
            +    return resnet50().to(DEVICE, memory_format=torch.channels_last).train()

            …
                     optimizer.zero_grad()
            -        loss = criterion(model(images), labels)
            +        loss = criterion(model(images.to(memory_format=torch.channels_last)), labels)
                     loss.backward()
            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
            NotUnderstood("no 2D convolution (Conv2d) was found in the program")
        "#####]],
    );
}

#[test]
fn checkpoint() {
    check_demo(
        EditKind::Checkpoint,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
             from torch import Tensor, nn
            +from torch.utils.checkpoint import checkpoint

            …
                 def forward(self, tokens: Tensor, segments: Tensor) -> Tensor:
            -        x = self.embeddings(tokens, segments)
            -        x = self.encoder(x, src_key_padding_mask=tokens == 0)
            -        return self.decoder(self.transform(x))
            +        x = checkpoint(self.embeddings, tokens, segments, use_reentrant=False)
            +        x = checkpoint(self.encoder, x, src_key_padding_mask=tokens == 0, use_reentrant=False)
            +        return self.decoder(checkpoint(self.transform, x, use_reentrant=False))

            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
            NotUnderstood("no repeated blocks were found in the model; name a line to checkpoint")
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
             from torch.nn import functional as F
            +from torch.utils.checkpoint import checkpoint

            …
                     for block in self.blocks:
            -            x = block(x)
            +            x = checkpoint(block, x, use_reentrant=False)
                     logits = self.head(self.norm(x))
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
            NotUnderstood("no repeated blocks were found in the model; name a line to checkpoint")
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
             from torch import Tensor, nn
            +from torch.utils.checkpoint import checkpoint

            …

            -        x = self.layer1(x)
            -        x = self.layer2(x)
            -        x = self.layer3(x)
            -        x = self.layer4(x)
            +        x = checkpoint(self.layer1, x, use_reentrant=False)
            +        x = checkpoint(self.layer2, x, use_reentrant=False)
            +        x = checkpoint(self.layer3, x, use_reentrant=False)
            +        x = checkpoint(self.layer4, x, use_reentrant=False)

            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
             from torch import Tensor, nn
            +from torch.utils.checkpoint import checkpoint

            …

            -        x = self.layer1(x)
            -        x = self.layer2(x)
            -        x = self.layer3(x)
            -        x = self.layer4(x)
            +        x = checkpoint(self.layer1, x, use_reentrant=False)
            +        x = checkpoint(self.layer2, x, use_reentrant=False)
            +        x = checkpoint(self.layer3, x, use_reentrant=False)
            +        x = checkpoint(self.layer4, x, use_reentrant=False)

            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
             from torch import Tensor, nn
            +from torch.utils.checkpoint import checkpoint

            …
                 def forward(self, source: Tensor, target: Tensor) -> Tensor:
            -        memory, state = self.encoder(source)
            -        return self.decoder(target, memory, state)
            +        memory, state = checkpoint(self.encoder, source, use_reentrant=False)
            +        return checkpoint(self.decoder, target, memory, state, use_reentrant=False)

        "#####]],
    );
}

#[test]
fn workers() {
    check_demo(
        EditKind::LoaderWorkers,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
                 loader = DataLoader(
            -        MaskedSentences(args.sentences, config), batch_size=args.batch_size, drop_last=True
            +        MaskedSentences(args.sentences, config),
            +        batch_size=args.batch_size,
            +        drop_last=True,
            +        num_workers=4,
            +        persistent_workers=True,
                 )
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
                 pictures = torch.rand(32 * args.batch_size, 3, 32, 32) * 2 - 1
            -    loader = DataLoader(TensorDataset(pictures), batch_size=args.batch_size, shuffle=True)
            +    loader = DataLoader(
            +        TensorDataset(pictures),
            +        batch_size=args.batch_size,
            +        shuffle=True,
            +        num_workers=4,
            +        persistent_workers=True,
            +    )

            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
            NotUnderstood("no DataLoader was found in the program")
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
                 device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            -    loader = DataLoader(Clicks(clicks, users, items), batch_size=args.batch_size, shuffle=True)
            +    loader = DataLoader(
            +        Clicks(clicks, users, items),
            +        batch_size=args.batch_size,
            +        shuffle=True,
            +        num_workers=4,
            +        persistent_workers=True,
            +    )
                 model = NeuMF(users, items).to(device)
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
                 parser.add_argument("--images", type=int, default=256)
            -    parser.add_argument("--workers", type=int, default=0)
            +    parser.add_argument("--workers", type=int, default=4)
                 parser.add_argument("--lr", type=float, default=0.01)
            …
                     drop_last=True,
            +        persistent_workers=args.workers > 0,
                 )
            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
            NotUnderstood("no DataLoader was found in the program")
            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
                     drop_last=True,
            +        num_workers=4,
            +        persistent_workers=True,
                 )
        "#####]],
    );
}

#[test]
fn pinned_memory() {
    check_demo(
        EditKind::PinnedMemory,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
                 def loss(self, batch: dict) -> torch.Tensor:
            -        batch = {name: tensor.to(self.device) for name, tensor in batch.items()}
            +        batch = {name: tensor.to(self.device, non_blocking=True) for name, tensor in batch.items()}
                     logits = self.model(batch["tokens"], batch["segments"])
            …
                 loader = DataLoader(
            -        MaskedSentences(args.sentences, config), batch_size=args.batch_size, drop_last=True
            +        MaskedSentences(args.sentences, config),
            +        batch_size=args.batch_size,
            +        drop_last=True,
            +        pin_memory=True,
                 )
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
                 pictures = torch.rand(32 * args.batch_size, 3, 32, 32) * 2 - 1
            -    loader = DataLoader(TensorDataset(pictures), batch_size=args.batch_size, shuffle=True)
            +    loader = DataLoader(
            +        TensorDataset(pictures),
            +        batch_size=args.batch_size,
            +        shuffle=True,
            +        pin_memory=True,
            +    )

            …
                     for (real,) in loader:
            -            real = real.to(device)
            +            real = real.to(device, non_blocking=True)
                         noise = torch.randn(len(real), args.latent, 1, 1, device=device)
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
            NotUnderstood("no DataLoader was found in the program")
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
                 device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            -    loader = DataLoader(Clicks(clicks, users, items), batch_size=args.batch_size, shuffle=True)
            +    loader = DataLoader(
            +        Clicks(clicks, users, items),
            +        batch_size=args.batch_size,
            +        shuffle=True,
            +        pin_memory=True,
            +    )
                 model = NeuMF(users, items).to(device)
            …
                     for user, item, label in loader:
            -            user, item, label = user.to(device), item.to(device), label.to(device)
            +            user, item, label = user.to(device, non_blocking=True), item.to(device, non_blocking=True), label.to(device, non_blocking=True)
                         loss = criterion(model(user, item), label)
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
            Done("batches are already pinned and copied asynchronously")
            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
            NotUnderstood("no DataLoader was found in the program")
            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
                 for source, target in loader:
            -        source, target = source.to(device), target.to(device)
            +        source, target = source.to(device, non_blocking=True), target.to(device, non_blocking=True)

            …
                     drop_last=True,
            +        pin_memory=True,
                 )
        "#####]],
    );
}

#[test]
fn zero_grad() {
    check_demo(
        EditKind::ZeroGradToNone,
        expect![[r#####"
            #### train.py """BERT (Devlin et al., 2018) with a masked-language-model head, built on torch's encoder."""
            Done("train.py:36 already sets gradients to None")
            #### train.py """DCGAN (Radford et al., 2015): a generator and a discriminator of strided convolutions."""
            Done("train.py:43 already sets gradients to None")
            #### train.py """A small GPT: pre-norm decoder blocks with causal self-attention."""
            Done("train.py:35 already sets gradients to None")
            #### train.py """Neural collaborative filtering (He et al., 2017): matrix factorization combined with an MLP."""
            Done("train.py:34 already sets gradients to None")
            #### train.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
            Done("train.py:55 already sets gradients to None")
            #### skyline_provider.py """ResNet-50 (He et al., 2015), with the architecture of torchvision."""
            Done("skyline_provider.py:26 already sets gradients to None")
            #### train.py """Sequence to sequence: an LSTM encoder, and an LSTM decoder with Luong attention (2015)."""
            Done("train.py:19 already sets gradients to None")
        "#####]],
    );
}
