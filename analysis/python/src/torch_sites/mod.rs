//! Detects whether a file is a script that trains a model, and where.
//!
//! Scripts vary, so this checks what the file *does* when it is started, not how it is laid out.
//! From the code that runs at the start, it follows calls by name to functions of the same file,
//! and looks there for `backward()`, an optimizer's `step()`, or a library call that trains.
//! [`reach()`] follows calls to other files of the project.

use crate::syntax::index::SourceIndex;

mod libraries;
mod outline;
mod reach;
mod roles;

pub use outline::ProgramOutline;
pub use reach::{Project, Reached, reach};

use outline::Call;
use roles::Role;

/// How likely a file is the script that a user starts to train a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingScript {
    /// 0 if it is not a training script; from [`TrainingScript::LIKELY`] on, it is worth starting.
    pub score: u32,
    /// The reasons, as shown to the user: `calls backward() in a loop`.
    pub reasons: Vec<&'static str>,
    /// The 1-based line of the training loop's `for` or `while`, or of the call that trains.
    pub loop_line: Option<u32>,
    /// The 1-based line of the main guard.
    pub main_line: Option<u32>,
    /// Whether the file defines the three functions of a Skyline or DeepView provider.
    pub provider: bool,
}

impl TrainingScript {
    /// The minimum score of a training script.
    pub const LIKELY: u32 = 10;
}

/// Scores a file.
pub fn training_script(index: &SourceIndex) -> TrainingScript {
    ProgramOutline::of(index).judge()
}

/// Scores a cell of a notebook. An earlier cell imports PyTorch.
pub fn training_cell(index: &SourceIndex) -> TrainingScript {
    let mut outline = ProgramOutline::of(index);
    outline.imports_torch = true;
    outline.judge()
}

impl ProgramOutline {
    /// Scores the file, without the project's other files.
    pub fn judge(&self) -> TrainingScript {
        let mut judged = TrainingScript {
            provider: self.provider,
            main_line: self.main_line,
            ..Default::default()
        };
        if self.is_test() {
            return judged;
        }
        let reached = self.reached();
        let runs = |call: &&Call| reached.contains(&call.scope);
        let calls: Vec<&Call> = self.calls.iter().filter(runs).collect();
        let first = |role: Role| calls.iter().copied().find(|call| call.role == Some(role));
        // A trainer class with a known name trains, whatever the library is.
        let fit = first(Role::Fit);
        if !self.imports_torch && fit.is_none() {
            return judged;
        }
        // The loop around the call, or around a call of the function that contains it.
        let repeated = |call: &Call| self.loop_around(call, &calls);
        let mut add = |points: u32, reason: &'static str| {
            judged.score += points;
            judged.reasons.push(reason);
        };
        let (backward, step) = (first(Role::Backward), first(Role::Step));
        let optimizer = first(Role::MakesOptimizer);
        if let Some(backward) = backward {
            let around = step.and_then(repeated).or_else(|| repeated(backward));
            match (around, step) {
                (Some(line), _) => {
                    judged.loop_line = Some(line);
                    add(10, "calls backward() in a loop");
                }
                (None, Some(_)) => add(8, "calls backward()"),
                // A file that defines a model may try its backward pass once.
                (None, None) => add(4, "calls backward() once"),
            }
            if step.is_some() {
                add(4, "steps an optimizer");
            }
        } else if let Some(fit) = fit {
            judged.loop_line = Some(fit.line);
            add(12, fit.library.map_or("trains with a trainer class", |library| library.reason));
        } else if optimizer.is_some()
            && let Some(call) =
                calls.iter().copied().find(|call| call.role == Some(Role::Delegates))
        {
            // The body of the loop is in another file: `train_one_epoch(model, loader, optimizer)`.
            judged.loop_line = Some(repeated(call).unwrap_or(call.line));
            add(10, "passes an optimizer to a training function");
        }
        if judged.score == 0 {
            return judged;
        }
        let mut add = |there: bool, reason: &'static str| {
            if there {
                judged.score += 1;
                judged.reasons.push(reason);
            }
        };
        add(optimizer.is_some(), "creates an optimizer");
        add(first(Role::MakesLoader).is_some(), "creates a DataLoader");
        add(self.main_line.is_some(), "has a main guard");
        add(first(Role::ParsesArguments).is_some(), "parses command-line arguments");
        judged
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: Expect) {
        let judged = training_script(&SourceIndex::new(format!("import torch\n{text}")));
        let likely = if judged.score >= TrainingScript::LIKELY { "yes" } else { "no" };
        let line = judged.loop_line.map_or("-".to_owned(), |line| line.to_string());
        let provider = if judged.provider { ", provider" } else { "" };
        expected
            .assert_eq(&format!("{likely}, loop {line}{provider}: {}", judged.reasons.join(", ")));
    }

    const STEP: &str = "        loss = f(x)\n        loss.backward()\n        optimizer.step()\n";

    #[test]
    fn loop_at_the_top_level() {
        check(
            "opt = torch.optim.SGD(p, lr=1)\nfor epoch in e:\n  for x in loader:\n    l(x).backward()\n    opt.step()\n",
            expect![
                "yes, loop 4: calls backward() in a loop, steps an optimizer, creates an optimizer"
            ],
        );
    }

    #[test]
    fn calls_nested_20_000_deep_are_read() {
        // Takes minutes if each call seeks its parent from the root of the tree.
        let nested = format!("{}1{}\n", "f(".repeat(20_000), ")".repeat(20_000));
        let judged = training_script(&SourceIndex::new(format!("import torch\n{nested}")));
        assert_eq!(judged.loop_line, None);
    }

    #[test]
    fn a_main_that_calls_train() {
        check(
            &format!(
                "def train(model, optimizer):\n    for x in d:\n{STEP}\ndef main():\n    p = argparse.ArgumentParser()\n    train(m, AdamW(q))\nif __name__ == '__main__':\n    main()\n"
            ),
            expect![
                "yes, loop 3: calls backward() in a loop, steps an optimizer, creates an optimizer, has a main guard, parses command-line arguments"
            ],
        );
    }

    #[test]
    fn custom_class_and_step_function() {
        check(
            "class Engine:\n  def fit(self):\n    for b in self.loader:\n      self.one(b)\n  def one(self, b):\n    self.scaler.scale(self.loss(b)).backward()\n    self.scaler.step(self.opt)\nif __name__ == \"__main__\":\n  Engine().fit()\n",
            expect![
                "yes, loop 4: calls backward() in a loop, steps an optimizer, has a main guard"
            ],
        );
    }

    #[test]
    fn functions_passed_as_arguments() {
        check(
            &format!("def worker(rank):\n    while True:\n{STEP}\nmp.spawn(worker, nprocs=2)\n"),
            expect!["yes, loop 3: calls backward() in a loop, steps an optimizer"],
        );
    }

    #[test]
    fn trainers() {
        check(
            "import lightning as L\ntrainer = L.Trainer(max_epochs=1)\ntrainer.fit(model, data)\n",
            expect!["yes, loop 4: trains with Lightning"],
        );
        check(
            "t = Seq2SeqTrainer(\n  model=m)\nt.train()\n",
            expect!["yes, loop 4: trains with a trainer class"],
        );
        check("learn.fit_one_cycle(3)\n", expect!["yes, loop 2: trains with a trainer class"]);
        check("model.train()\nscaler = StandardScaler().fit(x)\n", expect!["no, loop -: "]);
    }

    #[test]
    fn accelerate_and_a_closure() {
        check(
            "for x in loader:\n  accelerator.backward(loss)\n  optimizer.step()\n",
            expect!["yes, loop 2: calls backward() in a loop, steps an optimizer"],
        );
        check(
            "for x in loader:\n  def closure():\n    loss.backward()\n    return loss\n  optimizer.step(closure)\n",
            expect!["yes, loop 2: calls backward() in a loop, steps an optimizer"],
        );
    }

    #[test]
    fn loop_body_in_another_file() {
        check(
            "from engine import train_one_epoch\noptimizer = torch.optim.SGD(p)\nfor epoch in range(9):\n  train_one_epoch(model, optimizer, loader)\n",
            expect![
                "yes, loop 4: passes an optimizer to a training function, creates an optimizer"
            ],
        );
    }

    /// Checks a text without adding `import torch`.
    fn check_alone(text: &str, expected: Expect) {
        let judged = training_script(&SourceIndex::new(text));
        let line = judged.loop_line.map_or("-".to_owned(), |line| line.to_string());
        expected.assert_eq(&format!(
            "{}, loop {line}: {}",
            judged.score,
            judged.reasons.join(", ")
        ));
    }

    #[test]
    fn libraries_that_train() {
        check_alone("import keras\nmodel.fit(x, y)\n", expect!["12, loop 2: trains with Keras"]);
        check_alone(
            "from skorch import NeuralNetClassifier\nnet = NeuralNetClassifier(M)\nnet.fit(X, y)\n",
            expect!["12, loop 3: trains with skorch"],
        );
        check_alone(
            "from ultralytics import YOLO\nYOLO('a.yaml').train(data='c')\n",
            expect!["12, loop 2: trains with Ultralytics"],
        );
        check_alone(
            "from denoising_diffusion_pytorch import Trainer\nt = Trainer(d)\nt.train()\n",
            expect!["12, loop 3: trains with denoising-diffusion-pytorch"],
        );
        check_alone(
            "from somewhere import Trainer\nTrainer(d, lr=1).train()\n",
            expect!["12, loop 2: trains with a trainer class"],
        );
        check_alone(
            "from lightning.pytorch.cli import LightningCLI\ndef main():\n  LightningCLI(M)\nmain()\n",
            expect!["12, loop 3: trains with Lightning"],
        );
        check_alone(
            "from ignite.engine import Engine\nengine = Engine(f)\nengine.run(d)\n",
            expect!["12, loop 3: trains with Ignite"],
        );
        check_alone(
            "from fastai.vision.all import *\nmine = vision_learner(d, a)\nmine.fine_tune(1)\n",
            expect!["12, loop 3: trains with fastai"],
        );
        check_alone(
            "from trl import SFTTrainer\nx = SFTTrainer(m)\nx.train()\n",
            expect!["12, loop 3: trains with TRL"],
        );
        // Many libraries have a `fit`.
        check_alone("from sklearn.svm import SVC\nSVC().fit(x, y)\n", expect!["0, loop -: "]);
    }

    #[test]
    fn functions_started_by_a_decorator() {
        check(
            &format!(
                "@hydra.main(config_path='c')\ndef my(cfg):\n    for x in d:\n{STEP}if __name__ == '__main__':\n    my()\n"
            ),
            expect![
                "yes, loop 4: calls backward() in a loop, steps an optimizer, has a main guard"
            ],
        );
        check(
            &format!(
                "app = typer.Typer()\n@app.command()\ndef fit_it():\n    for x in d:\n{STEP}app()\n"
            ),
            expect!["yes, loop 5: calls backward() in a loop, steps an optimizer"],
        );
    }

    #[test]
    fn processes_and_marimo_cells() {
        check(
            &format!(
                "class Worker(mp.Process):\n  def __init__(self): pass\n  def run(self):\n    while True:\n{STEP}if __name__ == '__main__':\n  [w.start() for w in [Worker() for i in r]]\n"
            ),
            expect![
                "yes, loop 5: calls backward() in a loop, steps an optimizer, has a main guard"
            ],
        );
        check(
            &format!("class Pool(Base):\n  def run(self):\n    for x in d:\n{STEP}Pool()\n"),
            expect!["no, loop -: "],
        );
        check(
            &format!(
                "app = marimo.App()\n@app.cell\ndef _(d, f):\n    for x in d:\n{STEP}if __name__ == '__main__':\n  app.run()\n"
            ),
            expect![
                "yes, loop 5: calls backward() in a loop, steps an optimizer, has a main guard"
            ],
        );
    }

    #[test]
    fn notebooks_as_scripts() {
        check(
            &format!("# In[1]:\nget_ipython().run_line_magic('x', 'y')\nfor x in d:\n{STEP}"),
            expect!["yes, loop 4: calls backward() in a loop, steps an optimizer"],
        );
        check(
            &format!("# %%\nfor x in d:\n{STEP}"),
            expect!["yes, loop 3: calls backward() in a loop, steps an optimizer"],
        );
    }

    #[test]
    fn files_that_are_no_training_script() {
        // A library: nothing calls it.
        check(&format!("def train(optimizer):\n    for x in d:\n{STEP}"), expect!["no, loop -: "]);
        // A model, with a check that it works.
        check(
            "class N(nn.Module):\n  def forward(self, x): return x\nif __name__ == '__main__':\n  N()(x).sum().backward()\n",
            expect!["no, loop -: calls backward() once, has a main guard"],
        );
        // A game, and a scheduler.
        check("for _ in r:\n  env.step(a)\n  scheduler.step()\n", expect!["no, loop -: "]);
        // Tests.
        check(&format!("import pytest\nfor x in d:\n{STEP}"), expect!["no, loop -: "]);
        check(
            &format!("for x in d:\n{STEP}def test_it():\n    assert d\n"),
            expect!["no, loop -: "],
        );
        // Only strings and comments.
        check(
            "for x in d:\n    '''loss.backward()'''  # optimizer.step()\n",
            expect!["no, loop -: "],
        );
    }

    #[test]
    fn providers() {
        check(
            "def skyline_model_provider(): return m\ndef skyline_input_provider(batch_size=3): return x\ndef skyline_iteration_provider(model):\n  def it(x): model(x).backward()\n  return it\n",
            expect!["no, loop -, provider: "],
        );
    }
}
