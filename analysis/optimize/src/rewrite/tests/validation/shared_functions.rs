//! Functions that training and validation share.

use super::*;

/// A program whose step function is used for training and validation.
const SHARED: &str = "\
import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
        self.opt = torch.optim.SGD(self.model.parameters())

    def step(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.model(x), y)

    def train(self):
        for batch in train_loader:
            loss = self.step(batch)  # trains
            loss.backward()
            self.opt.step()

    def validate(self):
        total = 0.0
        for batch in val_loader:
            total += self.step(batch).item()  # here
        return total


trainer = Trainer()
trainer.train()
print(trainer.validate())
";

#[test]
fn step_functions_shared_with_training_are_not_changed() {
    check_at(
        NO_GRAD,
        SHARED,
        expect![[r#"

        +    @torch.no_grad()
             def validate(self):
    "#]],
    );
    check_at(
        EVAL,
        SHARED,
        expect![[r#"
                 total = 0.0
        +        self.model.eval()
                 for batch in val_loader:
                     total += self.step(batch).item()  # here
        +        self.model.train()
                 return total
    "#]],
    );
    // In the training loop it keeps its gradients.
    let training = SHARED.replace("# here", "# else").replace("# trains", "# here");
    check_at(
        NO_GRAD,
        &training,
        expect![[r#"
        refused: train.py:16 appears to contribute to a loss, so it needs its gradients
    "#]],
    );
    // It runs the backward pass itself.
    let back =
        SHARED.replace("        return nn", "        self.opt.zero_grad()\n        return nn");
    check_at(
        NO_GRAD,
        &back,
        expect![[r#"
        refused: no validation code was found here
    "#]],
    );
}

#[test]
fn functions_shared_with_training_are_not_changed() {
    let script = "\
import torch
from torch import nn

net = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
opt = torch.optim.SGD(net.parameters())


def forward_loss(model, batch):
    return model(batch).mean()


def step(batch):
    return forward_loss(net, batch)


for batch in train_loader:
    loss = step(batch)
    loss.backward()
    opt.step()
for batch in val_loader:
    print(step(batch).item())  # here
";
    check_at(
        NO_GRAD,
        script,
        expect![[r#"
             opt.step()
        -for batch in val_loader:
        -    print(step(batch).item())  # here
        +with torch.no_grad():
        +    for batch in val_loader:
        +        print(step(batch).item())  # here

    "#]],
    );
    check_at(
        EVAL,
        script,
        expect![[r#"
             opt.step()
        +net.eval()
         for batch in val_loader:
             print(step(batch).item())  # here
        +net.train()

    "#]],
    );
    // The model has another name there, or may be another model.
    for (from, to) in [
        ("    return forward_loss(net", "    model = net\n    return forward_loss(model"),
        ("forward_loss(net, batch)", "forward_loss(pick(), batch)"),
        ("def step(batch):", "def step(batch, net=net):"),
    ] {
        let shown = result_at(EVAL, &script.replace(from, to));
        assert!(shown.starts_with("refused: "), "{to}\n{shown}");
    }
}
