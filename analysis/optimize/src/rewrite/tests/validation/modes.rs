//! The mode that a model has after validation.

use super::*;

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
