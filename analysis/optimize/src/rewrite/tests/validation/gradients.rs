//! Validation code that needs gradients, or has them disabled already.

use super::*;

#[test]
fn code_that_a_loss_depends_on_keeps_gradients() {
    for script in [
        with("").replace("model(x), y)", "model(x), y)  # here"),
        // The loss of the next iteration.
        inline("memory = model(x)  # here").replace("model(x), y)", "model(x), memory)"),
        inline("memory = model(x)  # here")
            .replace("    loss =", "    target = memory * 2\n    loss =")
            .replace("model(x), y)", "model(x), target)"),
        // A function that the loss depends on indirectly.
        with(PLAIN_FUNCTION).replace("nn.functional.mse_loss(model(x), y)\n    opt", "both(model)\n    opt").replace(
            "\n\n\nfor",
            "\n\n\ndef both(model):\n    return evaluate(model, x, y) + 1\n\n\nfor",
        ),
        with("class Net(nn.Module):\n    def forward(self, x):\n        return evaluate(self.inner, x)\n\n    def __init__(self):\n        self.inner = nn.Linear(2, 2)\n\n\ndef evaluate(model, x):\n    return model(x)  # here").replace("model = nn.Seq", "net = Net()\nmodel = nn.Seq"),
    ] {
        let shown = result_at(NO_GRAD, &script);
        assert!(shown.starts_with("refused: "), "{script}\n{shown}");
        assert!(shown.contains("appears to contribute to a loss"), "{script}\n{shown}");
    }
    // A variable that is reassigned in between does not count.
    check_at(
        NO_GRAD,
        &inline("x, y = held_out\nloss = criterion(model(x), y)  # here\nprint(loss)"),
        expect![[r#"
                 x, y = held_out
            -    loss = criterion(model(x), y)  # here
            +    with torch.no_grad():
            +        loss = criterion(model(x), y)  # here
                 print(loss)
        "#]],
    );
    let before = with("").replace(
        "    loss =",
        "    loss = model(held_out).mean()  # here\n    print(loss)\n    loss =",
    );
    check_at(
        NO_GRAD,
        &before,
        expect![[r#"
         for x, y in loader:
        -    loss = model(held_out).mean()  # here
        +    with torch.no_grad():
        +        loss = model(held_out).mean()  # here
             print(loss)
    "#]],
    );
}

#[test]
fn validation_code_that_needs_gradients_keeps_them() {
    let attack = "def attack(model, x):\n    x.requires_grad_()\n    model(x).sum().backward()\n    \
                  return x.grad\n\n\ndef evaluate(model, x, y):\n    x = attack(model, x)\n    \
                  return model(x)  # here";
    check_at(
        NO_GRAD,
        &with(attack),
        expect![[r#"
             x = attack(model, x)
        -    return model(x)  # here
        +    with torch.no_grad():
        +        return model(x)  # here

    "#]],
    );
    let penalty = "def evaluate(model, x, y):\n    x.requires_grad = True\n    out = model(x)  # here\n    \
                   slope, = torch.autograd.grad(out.sum(), x)\n    return slope";
    check_at(
        NO_GRAD,
        &with(penalty),
        expect![[r#"
        refused: train.py:10 appears to contribute to a loss, so it needs its gradients
    "#]],
    );
}

#[test]
fn models_that_request_gradients_keep_them() {
    let forces = "class Net(nn.Module):\n    def forward(self, x):\n        \
                  return torch.autograd.grad(self.net(x).sum(), x)[0]\n\n\n\
                  def evaluate(model, x, y):\n    out = model(x)  # here\n    return out.mean()";
    check_at(
        NO_GRAD,
        &with(forces),
        expect![[r#"
        refused: train.py:9 requests gradients itself and needs them during validation
    "#]],
    );
    check_at(
        EVAL,
        &with(forces),
        expect![[r#"
         def evaluate(model, x, y):
        +    model.eval()
             out = model(x)  # here
        +    model.train()
             return out.mean()
    "#]],
    );
}

#[test]
fn already_disabled_gradients() {
    for (from, to) in [
        ("def evaluate", "@torch.no_grad()\ndef evaluate"),
        ("    out =", "    torch.set_grad_enabled(False)\n    out ="),
        ("    out = model(x)", "    with torch.inference_mode():\n        out = model(x)"),
    ] {
        let shown = result_at(NO_GRAD, &with(&PLAIN_FUNCTION.replace(from, to)));
        assert!(shown.starts_with("done: "), "{shown}");
    }
}
