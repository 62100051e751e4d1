//! Edits of validation code: without gradients, and in evaluation mode.

use expect_test::{Expect, expect};

use super::*;

const NO_GRAD: EditKind = EditKind::NoGradInValidation;
const EVAL: EditKind = EditKind::EvalModeInValidation;

/// Returns a program with a validation function that is called after each step.
fn with(function: &str) -> String {
    format!(
        "import torch\nfrom torch import nn\n\nmodel = nn.Sequential(nn.Linear(4, 4), nn.Dropout())\n\
         opt = torch.optim.SGD(model.parameters())\n\n\n{function}\n\n\nfor x, y in loader:\n    \
         loss = nn.functional.mse_loss(model(x), y)\n    opt.zero_grad()\n    loss.backward()\n    \
         opt.step()\n    print(evaluate(model, held_out, expected))\n"
    )
}

/// Returns a program with lines after the step.
fn inline(lines: &str) -> String {
    let lines: String = lines.lines().map(|line| format!("    {line}\n")).collect();
    with("").replace("    print(evaluate(model, held_out, expected))\n", &lines)
}

/// Returns the result of an edit of a script, or the reason of the refusal. It is requested at each
/// line with `# here`.
fn result_at(kind: EditKind, script: &str) -> String {
    let lines: Vec<(&str, u32)> = (1..)
        .zip(script.lines())
        .filter(|(_, line)| line.contains("# here"))
        .map(|(at, _)| ("train.py", at))
        .collect();
    let (mut texts, entry) = project(&[("train.py", script)]);
    let request = Request { kind, lines: &lines, count: None };
    match rewrite(&texts, &entry, &request) {
        Err(Refusal::Done(why)) => format!("done: {why}\n"),
        Err(Refusal::NotUnderstood(why)) => format!("refused: {why}\n"),
        Ok(made) => {
            let after = made.files[0].applied(script);
            // Once more, where these lines are then.
            let lines: Vec<(&str, u32)> = (1..)
                .zip(after.lines())
                .filter(|(_, line)| line.contains("# here"))
                .map(|(at, _)| ("train.py", at))
                .collect();
            texts.insert("train.py".to_owned(), after.as_str().into());
            let again = rewrite(&texts, &entry, &Request { kind, lines: &lines, count: None });
            assert!(matches!(again, Err(Refusal::Done(_))), "once more: {again:?}\n{after}");
            changed_lines(script, &after)
        }
    }
}

#[track_caller]
fn check_at(kind: EditKind, script: &str, expected: Expect) {
    expected.assert_eq(&result_at(kind, script));
}

const PLAIN_FUNCTION: &str = "\
def evaluate(model, x, y):
    out = model(x)  # here
    return nn.functional.mse_loss(out, y).item()";

#[test]
fn functions_without_a_loop() {
    let script = with(PLAIN_FUNCTION);
    check_at(
        NO_GRAD,
        &script,
        expect![[r#"

        +@torch.no_grad()
         def evaluate(model, x, y):
    "#]],
    );
    check_at(
        EVAL,
        &script,
        expect![[r#"
         def evaluate(model, x, y):
        +    model.eval()
             out = model(x)  # here
        +    model.train()
             return nn.functional.mse_loss(out, y).item()
    "#]],
    );
    // Only by its name, and by its `def`.
    check(
        NO_GRAD,
        &script,
        expect![[r#"

        +@torch.no_grad()
         def evaluate(model, x, y):
    "#]],
    );
    check(
        EVAL,
        &script,
        expect![[r#"
         def evaluate(model, x, y):
        +    model.eval()
             out = model(x)  # here
        +    model.train()
             return nn.functional.mse_loss(out, y).item()
    "#]],
    );
    let script = script.replace("  # here", "").replace("y):", "y):  # here");
    check_at(
        NO_GRAD,
        &script,
        expect![[r#"

        +@torch.no_grad()
         def evaluate(model, x, y):  # here
    "#]],
    );
}

#[test]
fn functions_that_return_the_model_s_output() {
    let script =
        with("def evaluate(model, x, y):\n    return criterion(model(x), y).item()  # here");
    check_at(
        NO_GRAD,
        &script,
        expect![[r#"

        +@torch.no_grad()
         def evaluate(model, x, y):
    "#]],
    );
    check_at(
        EVAL,
        &script,
        expect![[r#"
         def evaluate(model, x, y):
        -    return criterion(model(x), y).item()  # here
        +    model.eval()
        +    result = criterion(model(x), y).item()  # here
        +    model.train()
        +    return result

    "#]],
    );
    let script = with(
        "def evaluate(model, x, y):\n    out = model(x)  # here\n    print(out)\n    return (\n        \
         model(out), y  # two\n    )",
    );
    check_at(
        EVAL,
        &script,
        expect![[r#"
         def evaluate(model, x, y):
        +    model.eval()
             out = model(x)  # here
             print(out)
        -    return (
        +    result = (
                 model(out), y  # two
             )
        +    model.train()
        +    return result

    "#]],
    );
    let taken = with("def evaluate(model, result):\n    return model(result)  # here");
    check_at(
        EVAL,
        &taken,
        expect![[r#"
        refused: train.py:9 returns the model's output directly: assign it to a variable first
    "#]],
    );
    let one_line = with("def evaluate(model, x, y): return model(x)  # here");
    check_at(
        EVAL,
        &one_line,
        expect![[r#"
        refused: train.py:8 returns the model's output directly: assign it to a variable first
    "#]],
    );
    check_at(
        NO_GRAD,
        &one_line,
        expect![[r#"

        +@torch.no_grad()
         def evaluate(model, x, y): return model(x)  # here
    "#]],
    );
}

#[test]
fn calls_in_several_blocks() {
    let script = with(
        "def evaluate(model, x, y):\n    total = 0\n    if flip:\n        out = model(x.flip(1))  # here\n    \
         else:\n        out = model(x)\n    for one in more:\n        for two in one:\n            \
         out = out + model(two)\n    return out",
    );
    check_at(
        NO_GRAD,
        &script,
        expect![[r#"

        +@torch.no_grad()
         def evaluate(model, x, y):
    "#]],
    );
    check_at(
        EVAL,
        &script,
        expect![[r#"
             total = 0
        +    model.eval()
             if flip:
        …
                     out = out + model(two)
        +    model.train()
             return out
    "#]],
    );
    let inner = with(
        "def evaluate(model, x, y):\n    with torch.no_grad():\n        out = model(x)  # here\n        \
         return out.mean()",
    );
    check_at(
        EVAL,
        &inner,
        expect![[r#"
             with torch.no_grad():
        +        model.eval()
                 out = model(x)  # here
        +        model.train()
                 return out.mean()
    "#]],
    );
    check_at(
        NO_GRAD,
        &inner,
        expect![[r#"
        done: train.py:10 already validates without gradients
    "#]],
    );
    let leaves = with(
        "def evaluate(model, x, y):\n    if fast:\n        return model(x[:1])\n    return model(x)  # here",
    );
    check_at(
        EVAL,
        &leaves,
        expect![[r#"
        refused: train.py:9 returns in between, so the code after it would not run
    "#]],
    );
}

#[test]
fn lines_of_a_function_that_also_trains() {
    let script = inline("out = model(held_out)  # here\nprint(out.mean().item())");
    check_at(
        NO_GRAD,
        &script,
        expect![[r#"
             opt.step()
        -    out = model(held_out)  # here
        +    with torch.no_grad():
        +        out = model(held_out)  # here
             print(out.mean().item())
    "#]],
    );
    check_at(
        EVAL,
        &script,
        expect![[r#"
             opt.step()
        +    model.eval()
             out = model(held_out)  # here
        +    model.train()
             print(out.mean().item())
    "#]],
    );
    let several = inline(
        "error = criterion(\n    model(held_out),  # here\n    expected,\n)  # größer → schlechter\nprint(error)",
    );
    check_at(
        NO_GRAD,
        &several,
        expect![[r#"
             opt.step()
        -    error = criterion(
        -        model(held_out),  # here
        -        expected,
        -    )  # größer → schlechter
        +    with torch.no_grad():
        +        error = criterion(
        +            model(held_out),  # here
        +            expected,
        +        )  # größer → schlechter
             print(error)
    "#]],
    );
    check_at(
        EVAL,
        &several,
        expect![[r#"
             opt.step()
        +    model.eval()
             error = criterion(
        …
             )  # größer → schlechter
        +    model.train()
             print(error)
    "#]],
    );
    let over = inline("for a, b in val_loader:\n    # how good?\n    print(model(a))  # here");
    check_at(
        NO_GRAD,
        &over,
        expect![[r#"
             opt.step()
        -    for a, b in val_loader:
        -        # how good?
        -        print(model(a))  # here
        +    with torch.no_grad():
        +        for a, b in val_loader:
        +            # how good?
        +            print(model(a))  # here

    "#]],
    );
    // Another loop is not edited as a whole.
    let other = inline("for a in range(3):\n    improve(a)\n    print(model(a))  # here");
    check_at(
        NO_GRAD,
        &other,
        expect![[r#"
                 improve(a)
        -        print(model(a))  # here
        +        with torch.no_grad():
        +            print(model(a))  # here

    "#]],
    );
    let together = inline("a = 1; print(model(held_out))  # here");
    check_at(
        NO_GRAD,
        &together,
        expect![[r#"
        refused: train.py:16 has several statements on one line: put each on its own line
    "#]],
    );
    check_at(
        EVAL,
        &together,
        expect![[r#"
             opt.step()
        -    a = 1; print(model(held_out))  # here
        +    a = 1; model.eval(); print(model(held_out)); model.train()  # here

    "#]],
    );
}

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
fn loops_over_a_test_loader_are_edited_as_a_whole() {
    check_at(
        NO_GRAD,
        &inline("for x, y in testloader:\n    right += model(x).argmax(1) == y  # here"),
        expect![[r#"
                 opt.step()
            -    for x, y in testloader:
            -        right += model(x).argmax(1) == y  # here
            +    with torch.no_grad():
            +        for x, y in testloader:
            +            right += model(x).argmax(1) == y  # here

        "#]],
    );
}

#[test]
fn generators_and_async_functions() {
    for (from, to) in [
        ("    return nn", "    yield nn"),
        ("def evaluate", "async def evaluate"),
        ("def evaluate", "@torch.jit.script\ndef evaluate"),
    ] {
        let shown = result_at(NO_GRAD, &with(&PLAIN_FUNCTION.replace(from, to)));
        assert!(shown.starts_with("refused: "), "{shown}");
    }
    check_at(
        NO_GRAD,
        &with(&PLAIN_FUNCTION.replace("def evaluate", "@timed\n@staticmethod\ndef evaluate")),
        expect![[r#"
             @staticmethod
            +@torch.no_grad()
             def evaluate(model, x, y):
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

#[test]
fn the_previous_mode_is_restored() {
    // The program also evaluates the model elsewhere and may call this code then.
    let elsewhere =
        with(PLAIN_FUNCTION) + "model.eval()\nprint(evaluate(model, x, y))\nprint(model(x))\n";
    check_at(
        EVAL,
        &elsewhere,
        expect![[r#"
         def evaluate(model, x, y):
        +    was_training = model.training
        +    model.eval()
             out = model(x)  # here
        +    model.train(was_training)
             return nn.functional.mse_loss(out, y).item()
    "#]],
    );
    check_refused(
        EVAL,
        &elsewhere,
        expect!["done: the model of train.py:9 is already in evaluation mode"],
    );
    let by_train = elsewhere.replace("model.eval()", "model.train(mode=False)");
    check_at(
        EVAL,
        &by_train,
        expect![[r#"
         def evaluate(model, x, y):
        +    was_training = model.training
        +    model.eval()
             out = model(x)  # here
        +    model.train(was_training)
             return nn.functional.mse_loss(out, y).item()
    "#]],
    );
    let taken = elsewhere.replace("\nprint(model(x))", "\nwas_training = 1");
    check_at(
        EVAL,
        &taken,
        expect![[r#"
        refused: train.py:9 is in a program that already uses the name `was_training`
    "#]],
    );
    let here = with(&PLAIN_FUNCTION.replace("    out =", "    model.eval()\n    out ="));
    check_at(
        EVAL,
        &here,
        expect![[r#"
        done: the model of train.py:10 is already in evaluation mode
    "#]],
    );
}

#[test]
fn frozen_parts_stay_in_evaluation_mode() {
    for frozen in [
        "model.backbone.eval()",
        "for part in model.modules():\n    if isinstance(part, nn.BatchNorm2d):\n        part.eval()",
    ] {
        let shown = result_at(EVAL, &with(&format!("{frozen}\n\n\n{PLAIN_FUNCTION}")));
        assert!(shown.contains("puts part of a model into evaluation mode"), "{shown}");
    }
    // A separate model does not count as a part.
    let teacher = "teacher = nn.Linear(2, 2)\nteacher.eval()\n\n\n";
    let shown = result_at(EVAL, &with(&format!("{teacher}{PLAIN_FUNCTION}")));
    assert!(shown.contains("was_training = model.training"), "{shown}");
}

#[test]
fn models_assigned_in_between() {
    let models = "def evaluate(models, x, y):\n    out = 0\n    for model in models:\n        \
                  out = out + model(x)  # here\n    return out";
    check_at(
        EVAL,
        &with(models),
        expect![[r#"
        refused: train.py:10 assigns its model in between
    "#]],
    );
    check_at(
        NO_GRAD,
        &with(models),
        expect![[r#"

        +@torch.no_grad()
         def evaluate(models, x, y):
    "#]],
    );
}

#[test]
fn the_layout_is_preserved() {
    let script = inline("# größer → schlechter\nif True:\n\tout = model(  # here\n\t\theld_out,\n\t)\n\tprint('''\nas\n  is''')")
        .replace("    ", "\t")
        .replace('\n', "\r\n");
    check_at(
        NO_GRAD,
        &script,
        expect![[r#"
         	if True:␍
        -		out = model(  # here␍
        -			held_out,␍
        -		)␍
        +		with torch.no_grad():␍
        +			out = model(  # here␍
        +				held_out,␍
        +			)␍
         		print('''␍
    "#]],
    );
    check_at(
        EVAL,
        &script,
        expect![[r#"
         	if True:␍
        +		model.eval()␍
         		out = model(  # here␍
        …
         		)␍
        +		model.train()␍
         		print('''␍
    "#]],
    );
}

#[test]
fn loops_that_train_are_not_edited_as_a_whole() {
    let script = with(
        "def train_one(model):\n    model(1).sum().backward()\n\n\ndef run(model):\n    for epoch in range(3):\n        \
         train_one(model)\n        out = model(held_out)  # here\n        print(out)\n\n\nrun(model)",
    );
    check_at(
        NO_GRAD,
        &script,
        expect![[r#"
                 train_one(model)
        -        out = model(held_out)  # here
        +        with torch.no_grad():
        +            out = model(held_out)  # here
                 print(out)
    "#]],
    );
}

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
