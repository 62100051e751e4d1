//! Refused edits with their reasons, and texts that are not valid programs.

use expect_test::expect;
use proptest::prelude::*;

use super::*;

const BF16: EditKind = EditKind::AutocastBFloat16;
const FP16: EditKind = EditKind::AutocastFloat16;

#[test]
fn libraries_with_their_own_setting() {
    let lightning =
        "import lightning as L\ntrainer = L.Trainer(max_epochs=1)\ntrainer.fit(model)\n";
    check_refused(
        BF16,
        lightning,
        expect![[
            r#"Lightning supports this itself: set Trainer(precision="bf16-mixed") at train.py:2"#
        ]],
    );
    check_refused(
        EditKind::Compile,
        lightning,
        expect![
            "Lightning (train.py:2) runs the training loop, so there is no loop in the program to edit"
        ],
    );
    let transformers = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments('out')\nTrainer(model, args).train()\n";
    for (kind, expected) in [
        (FP16, expect!["transformers supports this itself: set fp16=True at train.py:2"]),
        (
            EditKind::FusedOptimizer,
            expect![[
                r#"transformers supports this itself: set optim="adamw_torch_fused" at train.py:2"#
            ]],
        ),
        (
            EditKind::LoaderWorkers,
            expect![
                "transformers supports this itself: set dataloader_num_workers=4 at train.py:2"
            ],
        ),
    ] {
        check_refused(kind, transformers, expected);
    }
    let accelerate = "from accelerate import Accelerator\naccelerator = Accelerator()\nfor x in loader:\n    loss = model(x)\n    accelerator.backward(loss)\n    optimizer.step()\n";
    check_refused(
        FP16,
        accelerate,
        expect![[
            r#"accelerate supports this itself: set Accelerator(mixed_precision="fp16") at train.py:2"#
        ]],
    );
}

#[test]
fn the_loss_depends_on_another_function() {
    check_refused(
        BF16,
        "import torch\nprint(1)\n",
        expect!["no training loop with a backward() call was found"],
    );
    check_refused(
        BF16,
        "import torch\ndef back(loss):\n    loss.backward()\nfor x in d:\n    back(model(x))\n",
        expect!["train.py:3 calls backward() on a loss computed in another function"],
    );
    check_refused(
        BF16,
        "import torch\nclass Pix:\n    def forward(self):\n        self.fake = self.netG(self.real)\n    def backward_G(self):\n        self.loss_G = self.crit(self.netD(self.fake), True)\n        self.loss_G.backward()\n    def optimize_parameters(self):\n        self.netD.train(); self.netG.train()\n        self.forward()\n        self.backward_G()\n        self.optimizer.step()\nPix().optimize_parameters()\n",
        expect!["train.py:4 computes `self.fake`, which the loss depends on, in another function"],
    );
    check_refused(
        BF16,
        "import torch\nmodel = torch.nn.Linear(1, 1)\nfor x in d: loss = model(x); loss.backward()\n",
        expect!["train.py:3 has several statements on one line: put each on its own line"],
    );
}

#[test]
fn the_program_already_uses_lower_precision() {
    let script = |dtype: &str| {
        format!(
            "import torch\nfor x in d:\n    with torch.autocast('cuda', dtype=torch.{dtype}):\n        loss = model(x)\n    loss.backward()\n"
        )
    };
    check_refused(
        BF16,
        &script("bfloat16"),
        expect!["done: train.py:3 already trains in bfloat16"],
    );
    check_refused(
        FP16,
        &script("bfloat16"),
        expect!["train.py:3 already uses autocast in bfloat16: change its dtype there"],
    );
    check_refused(
        BF16,
        "import torch\nmodel = Net().half()\nfor x in d:\n    loss = model(x)\n    loss.backward()\n",
        expect!["train.py:2 already casts to lower precision by hand"],
    );
    check_refused(
        BF16,
        "import torch\nmodel = torch.nn.Linear(1, 1)\ncrit = torch.nn.BCELoss()\nfor x in d:\n    loss = crit(model(x), 1)\n    loss.backward()\n",
        expect![
            "train.py:3 uses BCELoss, which is not safe under autocast: use the variant with logits and remove the sigmoid"
        ],
    );
    check_refused(
        BF16,
        "import torch\nmodel = torch.nn.Linear(1, 1)\nfor x in d:\n    out = model(x)\n    loss = out.sum()\n    loss.backward()\n    seen.append(out.detach().numpy())\n",
        expect![
            "train.py:7 creates a NumPy array, which does not support bfloat16: call .float() first"
        ],
    );
}

#[test]
fn scalers_that_would_be_wrong_are_refused() {
    let script = |body: &str| {
        format!(
            "import torch\nmodel = torch.nn.Linear(1, 1)\nopt = torch.optim.SGD(model.parameters(), 1)\nfor i, x in enumerate(d):\n    loss = model(x).sum()\n    loss.backward()\n{body}"
        )
    };
    check_refused(
        FP16,
        &script(
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)\n    if i % 2:\n        opt.step()\n",
        ),
        expect!["train.py:7 clips gradients in a different block than the optimizer step"],
    );
    check_refused(
        FP16,
        &script("    for p in model.parameters():\n        p.grad.mul_(2)\n    opt.step()\n"),
        expect![
            "train.py:9 reads gradients between backward() and step(), where they would be scaled"
        ],
    );
    check_refused(
        FP16,
        &script("    scaler = 3\n    opt.step()\n"),
        expect!["train.py:7 uses the name `scaler` for something else"],
    );
}

#[test]
fn a_step_in_another_function() {
    check_refused(
        FP16,
        "import torch\ndef back(x):\n    loss = model(x).sum()\n    loss.backward()\ndef main():\n    model = torch.nn.Linear(1, 1)\n    opt = torch.optim.SGD(model.parameters(), 1)\n    for x in d:\n        back(x)\n        opt.step()\nmain()\n",
        expect!["train.py:4 calls backward() in a different function than the optimizer step"],
    );
}

#[test]
fn models_without_a_visible_origin() {
    check_refused(
        EditKind::Compile,
        "import torch\nmodel, opt = setup()\nfor x in d:\n    model.train()\n    loss = model(x)\n    loss.backward()\n",
        expect!["train.py:2 assigns `model` together with other variables"],
    );
    check_refused(
        EditKind::ChannelsLast,
        "import torch\nmodel = torch.nn.Linear(1, 1)\nfor x in d:\n    loss = model(x)\n    loss.backward()\n",
        expect!["no 2D convolution (Conv2d) was found in the program"],
    );
    check_refused(
        EditKind::Checkpoint,
        PLAIN,
        expect!["no repeated blocks were found in the model; name a line to checkpoint"],
    );
}

#[test]
fn a_syntax_error() {
    check_refused(
        EditKind::FusedOptimizer,
        "import torch\nopt = torch.optim.SGD(p)\nx = = 3\n",
        expect!["train.py has a syntax error or has not been read yet"],
    );
    let (texts, _) = project(&[("train.py", "")]);
    let entry = Entry { path: "other.py".to_owned(), ..Entry::default() };
    let refused = rewrite(&texts, &entry, &request_for(BF16));
    assert_eq!(refused, Err(Refusal::NotUnderstood("other.py does not exist".to_owned())));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Truncated texts do not cause a panic, and an edit is not applied twice.
    #[test]
    fn truncated_texts(which in 0..demos::ALL.len(), from in 0.0..1.0, to in 0.0..1.0, kind in 0..11_usize) {
        let files = demos::ALL[which];
        let text = files[0].1;
        let at = |share: f64| ridgeline_python::character_at(text, (text.len() as f64 * share) as usize);
        let (from, to) = (at(f64::min(from, to) / 2.0), at(f64::max(from, to)));
        let mut cut: Vec<(&str, &str)> = files.to_vec();
        cut[0].1 = &text[from.min(to)..to];
        let (mut texts, entry) = project(&cut);
        let request = request_for(EditKind::ALL[kind]);
        if let Ok(made) = rewrite(&texts, &entry, &request) {
            for file in &made.files {
                let after = file.applied(&texts[&file.path]);
                texts.insert(file.path.clone(), after.into());
            }
            let again = rewrite(&texts, &entry, &request);
            prop_assert!(again.is_err(), "{again:?}\n{texts:?}");
        }
    }
}

/// With expressions nested 20,000 deep, every edit is created or refused, and the stack does not
/// overflow.
#[test]
fn deeply_nested_expressions() {
    let deep = |inner: &str| format!("{}{inner}{}", "(".repeat(20_000), ")".repeat(20_000));
    let calls = |inner: &str| format!("{}{inner}{}", "f(".repeat(20_000), ")".repeat(20_000));
    let chain = |inner: &str| format!("{inner}{}", ".f()".repeat(20_000));
    let script = |model: &str, loader: &str, optimizer: &str, loss: &str| {
        format!(
            "import torch\nfrom torch.utils.data import DataLoader\nmodel = {model}\n\
             loader = DataLoader(data, batch_size={loader})\n\
             optimizer = torch.optim.Adam({optimizer})\nfor x, y in loader:\n    \
             optimizer.zero_grad()\n    loss = {loss}\n    loss.backward()\n    optimizer.step()\n"
        )
    };
    let plain = ["torch.nn.Linear(4, 4)", "8", "model.parameters()", "model(x).sum()"];
    for at in 0..plain.len() {
        for nested in [deep(plain[at]), calls(plain[at]), chain(plain[at])] {
            let mut parts = plain.map(str::to_owned);
            parts[at] = nested;
            let [model, loader, optimizer, loss] = &parts;
            let text = script(model, loader, optimizer, loss);
            let (texts, entry) = project(&[("train.py", text.as_str())]);
            for kind in EditKind::ALL {
                // Created or refused: both are fine.
                let _ = rewrite(&texts, &entry, &request_for(kind));
            }
        }
    }
}
