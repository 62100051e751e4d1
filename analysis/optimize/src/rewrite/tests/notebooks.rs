//! Edits of notebooks, whose cells are one program.

use expect_test::expect;

use super::*;

/// The name of a notebook's cell.
fn cell(number: usize) -> String {
    format!("train.ipynb#{number}")
}

fn notebook(cells: &[&str]) -> (HashMap<String, Arc<str>>, Entry) {
    let named = cells.iter().enumerate().map(|(at, text)| (cell(at + 1), Arc::from(*text)));
    let entry = Entry { path: "train.ipynb".to_owned(), ..Entry::default() };
    (named.collect(), entry)
}

/// Returns the cells after an edit.
fn edited_cells(cells: &[&str], kind: EditKind) -> Result<Vec<String>, Refusal> {
    let (texts, entry) = notebook(cells);
    let rewrite = rewrite(&texts, &entry, &request_for(kind))?;
    let mut after: Vec<String> = cells.iter().map(|text| (*text).to_owned()).collect();
    for file in &rewrite.files {
        let at = (0..cells.len()).find(|at| cell(at + 1) == file.path).expect("a cell");
        after[at] = file.applied(cells[at]);
    }
    Ok(after)
}

/// Divides a script before top-level statements that follow an empty line.
fn divided(script: &str) -> Vec<&str> {
    let starts = script.match_indices("\n\n").map(|(at, _)| at + 1);
    let starts = starts.filter(|at| {
        let next = script[at + 1..].chars().next();
        next.is_some_and(|c| c.is_alphabetic() || c == '@')
    });
    let (mut cells, mut from) = (Vec::new(), 0);
    for start in starts {
        cells.push(&script[from..start]);
        from = start + 1;
    }
    cells.push(&script[from..]);
    cells
}

/// Applies an edit. The entry is a file or the cells of a notebook; its text comes first, then those of
/// the other files.
fn applied(
    mut texts: HashMap<String, Arc<str>>,
    entry: &Entry,
    kind: EditKind,
    names: &[String],
    others: &[(&str, &str)],
) -> Result<Vec<String>, Refusal> {
    for (path, text) in others {
        texts.insert((*path).to_owned(), Arc::from(*text));
    }
    for file in rewrite(&texts, entry, &request_for(kind))?.files {
        let after = file.applied(&texts[&file.path]);
        texts.insert(file.path, after.into());
    }
    let own: Vec<&str> = names.iter().map(|name| texts[name].as_ref()).collect();
    let others = others.iter().map(|(path, _)| texts[*path].to_string());
    Ok(std::iter::once(own.join("\n")).chain(others).collect())
}

/// The demo projects as notebooks get the same edits as the scripts.
#[test]
fn edits_of_scripts() {
    let mut count = 0;
    for files in demos::ALL.into_iter().filter(|files| files[0].0 == "train.py") {
        let (script, others) = (files[0].1, &files[1..]);
        let cells = divided(script);
        assert!(cells.len() > 2 && cells.join("\n") == script, "{cells:#?}");
        let names: Vec<String> = (1..=cells.len()).map(cell).collect();
        for kind in EditKind::ALL.into_iter().chain(EditKind::FIXES) {
            let (texts, entry) = project(&files[..1]);
            let expected = applied(texts, &entry, kind, &["train.py".to_owned()], others);
            let (texts, entry) = notebook(&cells);
            let made = applied(texts, &entry, kind, &names, others);
            count += usize::from(expected.is_ok());
            match (made, expected) {
                (Ok(made), Ok(expected)) => assert_eq!(made, expected, "{kind:?}"),
                (Err(Refusal::Done(_)), Err(Refusal::Done(_)))
                | (Err(Refusal::NotUnderstood(_)), Err(Refusal::NotUnderstood(_))) => (),
                (made, expected) => panic!("{kind:?} of {script}: {made:?}, not {expected:?}"),
            }
        }
    }
    assert!(count > 30, "{count}");
}

#[test]
fn magics_stay() {
    let cells = [
        "!pip install torch\n%matplotlib inline\nimport torch",
        "%%time\nmodel = torch.nn.Linear(8, 8)\noptimizer = torch.optim.Adam(model.parameters())",
        "%%bash\nmodel(",
        "for step in range(100):\n    loss = model(torch.randn(4, 8)).sum()\n    \
         optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n    !nvidia-smi",
    ];
    let made = |kind| edited_cells(&cells, kind).expect("an edit").join("\n---\n");
    expect![[r#"
        !pip install torch
        %matplotlib inline
        import torch
        ---
        %%time
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adam(model.parameters(), fused=True)
        ---
        %%bash
        model(
        ---
        for step in range(100):
            loss = model(torch.randn(4, 8)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            !nvidia-smi"#]]
    .assert_eq(&made(EditKind::FusedOptimizer));
    expect![[r#"
        !pip install torch
        %matplotlib inline
        import torch
        ---
        %%time
        model = torch.nn.Linear(8, 8)
        model = torch.compile(model)
        optimizer = torch.optim.Adam(model.parameters())
        ---
        %%bash
        model(
        ---
        for step in range(100):
            loss = model(torch.randn(4, 8)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            !nvidia-smi"#]]
    .assert_eq(&made(EditKind::Compile));
    expect![[r#"
        !pip install torch
        %matplotlib inline
        import torch

        torch.set_float32_matmul_precision("high")
        ---
        %%time
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adam(model.parameters())
        ---
        %%bash
        model(
        ---
        for step in range(100):
            loss = model(torch.randn(4, 8)).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            !nvidia-smi"#]]
    .assert_eq(&made(EditKind::Tf32));
}

#[test]
fn refusals_name_the_cell() {
    let cells = [
        "import torch\nmodel = torch.nn.Linear(8, 8)",
        "scaler = 1\nloss = model(torch.randn(4, 8)).sum()",
        "opt = torch.optim.SGD(model.parameters(), 0.1)\nfor step in range(9):\n    loss = model(torch.randn(4, 8)).sum()\n    loss.backward()\n    opt.step()",
    ];
    let refused = edited_cells(&cells, EditKind::AutocastFloat16).expect_err("a refusal");
    expect!["train.ipynb#2:1 uses the name `scaler` for something else"]
        .assert_eq(&refused.to_string());
}
