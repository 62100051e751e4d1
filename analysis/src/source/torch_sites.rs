//! Whether a text is a script that trains a model, and where it does.
//!
//! It reads other people's scripts, so it asks what the text *does* when it is started, not how it
//! is laid out: from the code that runs at the start, follow the calls by name to functions of the
//! same text, and look there for `backward()`, an optimizer's `step()`, or a trainer's `fit()`.

use std::collections::{HashMap, HashSet};

use tree_sitter::Node;

use super::index::SourceIndex;
use super::statements::ScopeKind;

/// How much a text looks like the script that a person starts to train a model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrainingScript {
    /// 0 where it does not; scripts from [`TrainingScript::LIKELY`] on are worth starting.
    pub score: u32,
    /// Why, in a person's words: `calls backward() in a loop`.
    pub reasons: Vec<&'static str>,
    /// The line of the training loop's `for` or `while`, or of the call that trains, counted from 1.
    pub loop_line: Option<u32>,
    /// The line of the main guard, counted from 1.
    pub main_line: Option<u32>,
    /// The text defines the three functions of a Skyline or DeepView provider.
    pub provider: bool,
}

impl TrainingScript {
    /// From this score on, the text is taken to be a training script.
    pub const LIKELY: u32 = 10;
}

/// Names of optimizers that scripts import by themselves. Anything from a module called `optim` is
/// known by that.
const OPTIMIZERS: [&str; 16] = [
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "ASGD",
    "DeepSpeedCPUAdam",
    "FusedAdam",
    "LAMB",
    "LBFGS",
    "Lion",
    "NAdam",
    "RAdam",
    "RMSprop",
    "SGD",
];

/// Packages whose import says that a text may train with PyTorch.
const PACKAGES: [&str; 11] = [
    "torch",
    "lightning",
    "pytorch_lightning",
    "transformers",
    "accelerate",
    "fastai",
    "deepspeed",
    "timm",
    "trl",
    "composer",
    "ignite",
];

/// Judges a text.
pub fn training_script(index: &SourceIndex) -> TrainingScript {
    let facts = Facts::gather(index);
    let mut judged = TrainingScript {
        provider: facts.provider,
        main_line: facts.main_line,
        ..Default::default()
    };
    if !facts.imports_torch || facts.from_notebook || facts.is_test() {
        return judged;
    }
    let reached = facts.reached(index);
    let runs = |call: &&Call| reached.contains(&call.scope);
    let calls: Vec<&Call> = facts.calls.iter().filter(runs).collect();
    let first = |role: Role| calls.iter().copied().find(|call| call.role == Some(role));
    // What repeats: a loop around the call, or around a call of the function that it is in.
    let repeated = |call: &Call| facts.loop_around(call, &calls, index);
    let mut add = |points: u32, reason: &'static str| {
        judged.score += points;
        judged.reasons.push(reason);
    };
    let (backward, step, fit) = (first(Role::Backward), first(Role::Step), first(Role::Fit));
    let made = first(Role::MakesOptimizer);
    if let Some(backward) = backward {
        let around = step.and_then(repeated).or_else(|| repeated(backward));
        match (around, step) {
            (Some(line), _) => {
                judged.loop_line = Some(line);
                add(10, "calls backward() in a loop");
            }
            (None, Some(_)) => add(8, "calls backward()"),
            // A model's file may try one backward pass of it.
            (None, None) => add(4, "calls backward() once"),
        }
        if step.is_some() {
            add(4, "steps an optimizer");
        }
    } else if let Some(fit) = fit {
        judged.loop_line = Some(fit.line);
        add(12, "trains with a trainer");
    } else if made.is_some()
        && let Some(call) = calls.iter().copied().find(|call| call.role == Some(Role::Delegates))
    {
        // The loop's body is in another file: `train_one_epoch(model, loader, optimizer)`.
        judged.loop_line = Some(repeated(call).unwrap_or(call.line));
        add(10, "hands an optimizer to a function that trains");
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
    add(made.is_some(), "makes an optimizer");
    add(first(Role::MakesLoader).is_some(), "makes a data loader");
    add(facts.main_line.is_some(), "has a main guard");
    add(first(Role::ParsesArguments).is_some(), "reads command line arguments");
    judged
}

/// What a call does for training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Backward,
    Step,
    Fit,
    MakesOptimizer,
    MakesLoader,
    ParsesArguments,
    /// Gets an optimizer and is named after training.
    Delegates,
}

#[derive(Debug)]
struct Call {
    role: Option<Role>,
    /// The last part of what is called.
    name: String,
    /// Names that are handed over as they are, as in `spawn(main, …)`.
    arguments: Vec<String>,
    scope: usize,
    line: u32,
    /// The line of the innermost loop around it in the same function.
    in_loop: Option<u32>,
}

#[derive(Debug, Default)]
struct Facts {
    calls: Vec<Call>,
    imports_torch: bool,
    imports_test_framework: bool,
    from_notebook: bool,
    main_line: Option<u32>,
    defines_tests: bool,
    provider: bool,
}

/// Longer expressions in front of a call are not read.
const MAX_NAME: usize = 80;
/// More arguments, or more calls in a text, are not read.
const MAX_ARGUMENTS: usize = 32;
const MAX_CALLS: usize = 100_000;

impl Facts {
    fn gather(index: &SourceIndex) -> Facts {
        let text = index.text();
        let mut facts = Facts {
            // What nbconvert writes; it often calls `get_ipython()` and waits for nobody.
            from_notebook: text.lines().any(|line| line.starts_with("# In["))
                || text.contains("get_ipython()"),
            provider: defines_provider(index),
            ..Facts::default()
        };
        facts.defines_tests = index.scopes().iter().any(|scope| {
            let name = text.get(scope.name.clone()).unwrap_or_default();
            scope.kind == ScopeKind::Function && name.starts_with("test_")
        });
        let Some(tree) = index.tree() else { return facts };
        let mut optimizers: HashSet<&str> = HashSet::new();
        let mut trainers: HashSet<&str> = HashSet::new();
        // Of the loops around the cursor: where each ends, its line, its scope.
        let mut loops: Vec<(usize, u32, usize)> = Vec::new();
        let mut cursor = tree.walk();
        loop {
            let node = cursor.node();
            while loops.last().is_some_and(|(end, ..)| *end <= node.start_byte()) {
                loops.pop();
            }
            match node.kind() {
                "for_statement" | "while_statement" => {
                    let scope = index.scope_at(node.start_byte());
                    let line = index.lines().line_of(node.start_byte());
                    loops.push((node.end_byte(), line, scope));
                }
                "import_statement" | "import_from_statement" => facts.import(read(node, text)),
                "if_statement" if is_main_guard(node, text) => {
                    facts.main_line.get_or_insert(index.lines().line_of(node.start_byte()));
                }
                "assignment" => {
                    let name = node.child_by_field_name("left").map(|left| read(left, text));
                    let called = node
                        .child_by_field_name("right")
                        .filter(|right| right.kind() == "call")
                        .and_then(|right| right.child_by_field_name("function"))
                        .map(|function| read(function, text));
                    if let (Some(name), Some(called)) = (name, called) {
                        if makes_optimizer(called) {
                            optimizers.insert(name);
                        } else if last(called).ends_with("Trainer") || called.ends_with("Learner") {
                            trainers.insert(name);
                        }
                    }
                }
                "call" if facts.calls.len() < MAX_CALLS => {
                    let scope = index.scope_at(node.start_byte());
                    let in_loop = loops.iter().rev().find(|(.., of)| *of == scope);
                    let in_loop = in_loop.map(|(_, line, _)| *line);
                    let line = index.lines().line_of(node.start_byte());
                    facts.calls.extend(read_call(
                        node,
                        text,
                        &optimizers,
                        &trainers,
                        (scope, line, in_loop),
                    ));
                }
                _ => {}
            }
            if cursor.goto_first_child() {
                continue;
            }
            while !cursor.goto_next_sibling() {
                if !cursor.goto_parent() {
                    return facts;
                }
            }
        }
    }

    fn import(&mut self, statement: &str) {
        let words = statement
            .split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .filter(|word| !matches!(*word, "import" | "from" | "as" | ""));
        for word in words {
            let package = word.split('.').next().unwrap_or_default();
            self.imports_torch |= PACKAGES.contains(&package);
            self.imports_test_framework |=
                matches!(package, "pytest" | "unittest") || word == "torch.testing";
        }
    }

    fn is_test(&self) -> bool {
        self.imports_test_framework || (self.defines_tests && self.main_line.is_none())
    }

    /// The scopes that run when the text is started.
    fn reached(&self, index: &SourceIndex) -> HashSet<usize> {
        let mut by_name: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        for (at, scope) in index.scopes().iter().enumerate() {
            if let Some(parent) = scope.parent {
                let name = index.text().get(scope.name.clone()).unwrap_or_default();
                by_name.entry(name).or_default().push(at);
                children.entry(parent as usize).or_default().push(at);
            }
        }
        let kind = |at: usize| index.scopes().get(at).map(|scope| scope.kind);
        let mut calls: HashMap<usize, Vec<&Call>> = HashMap::new();
        for call in &self.calls {
            calls.entry(call.scope).or_default().push(call);
        }
        let mut reached = HashSet::from([0]);
        let mut waiting = vec![0];
        let mut names_seen: HashSet<&str> = HashSet::new();
        while let Some(scope) = waiting.pop() {
            let mut next: Vec<usize> = Vec::new();
            for call in calls.get(&scope).into_iter().flatten() {
                for name in std::iter::once(&call.name).chain(&call.arguments) {
                    if names_seen.insert(name) {
                        next.extend(by_name.get(name.as_str()).into_iter().flatten());
                    }
                }
            }
            // The body of a class runs, and so does what a reached function defines, mostly: a
            // closure for `step`, a nested `train_step`. Methods run when they are called; of a
            // class that is made, its constructor does.
            for &child in children.get(&scope).into_iter().flatten() {
                let nested = kind(scope) == Some(ScopeKind::Function);
                let constructor = kind(scope) == Some(ScopeKind::Class) && scope != 0 && {
                    let name = index.scopes().get(child).map(|scope| scope.name.clone());
                    name.and_then(|name| index.text().get(name)) == Some("__init__")
                };
                if nested || constructor {
                    next.push(child);
                }
            }
            waiting.extend(next.into_iter().filter(|&scope| reached.insert(scope)));
        }
        reached
    }

    /// The line of the loop that repeats a call: around it in its function, or around a call of
    /// that function, up to four functions up.
    fn loop_around(&self, call: &Call, calls: &[&Call], index: &SourceIndex) -> Option<u32> {
        let (mut in_loop, mut scope) = (call.in_loop, call.scope);
        for _ in 0..4 {
            if in_loop.is_some() || scope == 0 {
                return in_loop;
            }
            let found = index.scopes().get(scope)?;
            let name = index.text().get(found.name.clone())?;
            let is_its = |caller: &&&Call| {
                let handed = caller.arguments.iter().any(|argument| argument == name);
                (caller.name == name || handed) && caller.scope != scope
            };
            let callers = || calls.iter().filter(is_its);
            let caller = callers().find(|caller| caller.in_loop.is_some()).or(callers().next())?;
            (in_loop, scope) = (caller.in_loop, caller.scope);
        }
        in_loop
    }
}

fn read_call(
    node: Node<'_>,
    text: &str,
    optimizers: &HashSet<&str>,
    trainers: &HashSet<&str>,
    (scope, line, in_loop): (usize, u32, Option<u32>),
) -> Option<Call> {
    let function = node.child_by_field_name("function")?;
    let (object, name) = match function.kind() {
        "attribute" => {
            let name = read(function.child_by_field_name("attribute")?, text);
            // Of a chain only the end counts: `scaler.scale(loss)` and the like may be long.
            (Some(read(function.child_by_field_name("object")?, text)), name)
        }
        "identifier" => (None, read(function, text)),
        _ => return None,
    };
    let mut arguments = Vec::new();
    if let Some(list) = node.child_by_field_name("arguments") {
        let mut cursor = list.walk();
        for argument in list.named_children(&mut cursor).take(MAX_ARGUMENTS) {
            let value = match argument.kind() {
                "keyword_argument" => argument.child_by_field_name("value"),
                _ => Some(argument),
            };
            if let Some(value) = value.filter(|value| value.kind() == "identifier") {
                arguments.push(read(value, text).to_owned());
            }
        }
    }
    let is_optimizer =
        |name: &str| optimizers.contains(name) || last(name).to_lowercase().contains("optim");
    let whole = read(function, text);
    let role = match (object, name) {
        (Some(_), "backward" | "manual_backward") => Some(Role::Backward),
        (Some(object), "step" | "step_and_update_lr") if steps(object, is_optimizer) => {
            Some(Role::Step)
        }
        (Some(object), "fit" | "fit_one_cycle" | "fine_tune" | "train")
            if is_trainer(object, trainers) =>
        {
            Some(Role::Fit)
        }
        _ if makes_optimizer(whole) => Some(Role::MakesOptimizer),
        (_, "DataLoader") => Some(Role::MakesLoader),
        (_, "ArgumentParser") => Some(Role::ParsesArguments),
        _ if name.to_lowercase().contains("train")
            && arguments.iter().any(|argument| is_optimizer(argument)) =>
        {
            Some(Role::Delegates)
        }
        _ => None,
    };
    Some(Call { role, name: name.to_owned(), arguments, scope, line, in_loop })
}

/// `torch.optim.SGD`, `optim.AdamW`, `AdamW`.
fn makes_optimizer(called: &str) -> bool {
    let mut parts = called.rsplit('.');
    let name = parts.next().unwrap_or_default();
    let module = parts.next();
    let starts_upper = name.starts_with(|c: char| c.is_ascii_uppercase());
    (module == Some("optim") && starts_upper) || OPTIMIZERS.contains(&name)
}

/// Whether what has a `step()` is an optimizer, rather than a scheduler or a game.
fn steps(object: &str, is_optimizer: impl Fn(&str) -> bool) -> bool {
    let name = last(object).to_lowercase();
    if name.contains("sched") || name.contains("env") {
        return false;
    }
    is_optimizer(object)
        || name.starts_with("opt")
        || name.ends_with("opt")
        || name.starts_with("opt_")
        || matches!(
            name.as_str(),
            "scaler" | "grad_scaler" | "engine" | "model_engine" | "sgd" | "adam"
        )
}

fn is_trainer(object: &str, trainers: &HashSet<&str>) -> bool {
    let name = last(object.split('(').next().unwrap_or_default()).to_lowercase();
    trainers.contains(object)
        || name.ends_with("trainer")
        || matches!(name.as_str(), "learn" | "learner")
}

/// `c` of `a.b.c`.
fn last(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or_default()
}

/// A node's text; empty where it is long.
fn read<'a>(node: Node<'_>, text: &'a str) -> &'a str {
    let range = node.byte_range();
    let limit = if node.kind().starts_with("import") { 10 * MAX_NAME } else { MAX_NAME };
    if range.len() > limit { "" } else { text.get(range).unwrap_or_default() }
}

fn is_main_guard(node: Node<'_>, text: &str) -> bool {
    let condition = node.child_by_field_name("condition").map(|condition| read(condition, text));
    condition.is_some_and(|text| text.contains("__name__") && text.contains("__main__"))
}

/// Skyline calls the three functions `skyline_…`, DeepView `deepview_…`.
fn defines_provider(index: &SourceIndex) -> bool {
    let defined: HashSet<&str> = index
        .scopes()
        .iter()
        .filter(|scope| scope.kind == ScopeKind::Function && scope.parent == Some(0))
        .filter_map(|scope| index.text().get(scope.name.clone()))
        .collect();
    ["skyline", "deepview"].iter().any(|prefix| {
        ["model_provider", "input_provider", "iteration_provider"]
            .iter()
            .all(|name| defined.contains(format!("{prefix}_{name}").as_str()))
    })
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
    fn a_loop_at_the_top() {
        check(
            "opt = torch.optim.SGD(p, lr=1)\nfor epoch in e:\n  for x in loader:\n    l(x).backward()\n    opt.step()\n",
            expect![
                "yes, loop 4: calls backward() in a loop, steps an optimizer, makes an optimizer"
            ],
        );
    }

    #[test]
    fn a_main_that_calls_train() {
        check(
            &format!(
                "def train(model, optimizer):\n    for x in d:\n{STEP}\ndef main():\n    p = argparse.ArgumentParser()\n    train(m, AdamW(q))\nif __name__ == '__main__':\n    main()\n"
            ),
            expect![
                "yes, loop 3: calls backward() in a loop, steps an optimizer, makes an optimizer, has a main guard, reads command line arguments"
            ],
        );
    }

    #[test]
    fn a_class_of_their_own_and_a_function_for_a_step() {
        check(
            "class Engine:\n  def fit(self):\n    for b in self.loader:\n      self.one(b)\n  def one(self, b):\n    self.scaler.scale(self.loss(b)).backward()\n    self.scaler.step(self.opt)\nif __name__ == \"__main__\":\n  Engine().fit()\n",
            expect![
                "yes, loop 4: calls backward() in a loop, steps an optimizer, has a main guard"
            ],
        );
    }

    #[test]
    fn functions_that_are_handed_over() {
        check(
            &format!("def worker(rank):\n    while True:\n{STEP}\nmp.spawn(worker, nprocs=2)\n"),
            expect!["yes, loop 3: calls backward() in a loop, steps an optimizer"],
        );
    }

    #[test]
    fn trainers() {
        check(
            "import lightning as L\ntrainer = L.Trainer(max_epochs=1)\ntrainer.fit(model, data)\n",
            expect!["yes, loop 4: trains with a trainer"],
        );
        check(
            "t = Seq2SeqTrainer(\n  model=m)\nt.train()\n",
            expect!["yes, loop 4: trains with a trainer"],
        );
        check("learn.fit_one_cycle(3)\n", expect!["yes, loop 2: trains with a trainer"]);
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
    fn a_loop_whose_body_is_in_another_file() {
        check(
            "from engine import train_one_epoch\noptimizer = torch.optim.SGD(p)\nfor epoch in range(9):\n  train_one_epoch(model, optimizer, loader)\n",
            expect![
                "yes, loop 4: hands an optimizer to a function that trains, makes an optimizer"
            ],
        );
    }

    #[test]
    fn what_is_no_training_script() {
        // A library: nobody calls it.
        check(&format!("def train(optimizer):\n    for x in d:\n{STEP}"), expect!["no, loop -: "]);
        // A model, with a look at whether it works.
        check(
            "class N(nn.Module):\n  def forward(self, x): return x\nif __name__ == '__main__':\n  N()(x).sum().backward()\n",
            expect!["no, loop -: calls backward() once, has a main guard"],
        );
        // A game, and a scheduler.
        check("for _ in r:\n  env.step(a)\n  scheduler.step()\n", expect!["no, loop -: "]);
        // Tests.
        check(&format!("import pytest\nfor x in d:\n{STEP}"), expect!["no, loop -: "]);
        check(
            &format!("def test_it():\n    for x in d:\n{STEP}test_it()\n"),
            expect!["no, loop -: "],
        );
        // What nbconvert wrote.
        check(&format!("# In[1]:\nfor x in d:\n{STEP}"), expect!["no, loop -: "]);
        // Only talk of it.
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
