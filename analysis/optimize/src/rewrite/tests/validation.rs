//! Edits of validation code: without gradients, and in evaluation mode.

use expect_test::{Expect, expect};

use super::*;

mod gradients;
mod modes;
mod shared_functions;

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
        Ok(edit) => {
            let after = edit.files[0].applied(script);
            // Request it again at the new positions of these lines.
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
