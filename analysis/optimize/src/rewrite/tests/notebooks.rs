//! Edits of notebooks, whose cells are one program.

use expect_test::expect;

use super::*;

/// The name of a notebook's cell.
fn cell(number: usize) -> String {
    format!("train.ipynb#{number}")
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

/// Returns the texts after an edit, in the order of the files.
fn applied(files: &[(&str, &str)], kind: EditKind) -> Result<Vec<String>, Refusal> {
    let (mut texts, entry) = project(files);
    for file in rewrite(&texts, &entry, &request_for(kind))?.files {
        let after = file.applied(&texts[&file.path]);
        texts.insert(file.path, after.into());
    }
    Ok(files.iter().map(|(path, _)| texts[*path].to_string()).collect())
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
        let named = names.iter().map(String::as_str).zip(cells.iter().copied());
        let notebook: Vec<(&str, &str)> = named.chain(others.iter().copied()).collect();
        // A launcher does not start notebooks.
        let kinds = EditKind::ALL.into_iter().chain(EditKind::FIXES);
        for kind in kinds.filter(|kind| !kind.needs_launcher()) {
            let expected = applied(files, kind);
            count += usize::from(expected.is_ok());
            match (applied(&notebook, kind), expected) {
                (Ok(made), Ok(expected)) => {
                    let (own, others) = made.split_at(cells.len());
                    assert_eq!(own.join("\n"), expected[0], "{kind:?}");
                    assert_eq!(others, &expected[1..], "{kind:?}");
                }
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
    let training = "for step in range(100):\n    loss = model(torch.randn(4, 8)).sum()\n    \
                    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n    \
                    !nvidia-smi";
    let model = "%%time\nmodel = torch.nn.Linear(8, 8)\noptimizer = \
                 torch.optim.Adam(model.parameters())";
    let files = [
        ("train.ipynb#1", "!pip install torch\n%matplotlib inline\nimport torch"),
        ("train.ipynb#2", model),
        ("train.ipynb#3", "%%bash\nmodel("),
        ("train.ipynb#4", training),
    ];
    check_files(
        &files,
        request_for(EditKind::FusedOptimizer),
        expect![[r#"
        == train.ipynb#2
         model = torch.nn.Linear(8, 8)
        -optimizer = torch.optim.Adam(model.parameters())
        +optimizer = torch.optim.Adam(model.parameters(), fused=True)
    "#]],
    );
    check_files(
        &files,
        request_for(EditKind::Compile),
        expect![[r#"
        == train.ipynb#2
         model = torch.nn.Linear(8, 8)
        +model = torch.compile(model)
         optimizer = torch.optim.Adam(model.parameters())
    "#]],
    );
    check_files(
        &files,
        request_for(EditKind::Tf32),
        expect![[r#"
        == train.ipynb#1
         import torch
        +
        +torch.set_float32_matmul_precision("high")
    "#]],
    );
    check_files(
        &files,
        request_for(EditKind::AutocastBFloat16),
        expect![[r#"
        == train.ipynb#4
         for step in range(100):
        -    loss = model(torch.randn(4, 8)).sum()
        +    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        +        loss = model(torch.randn(4, 8)).sum()
             optimizer.zero_grad()
    "#]],
    );
}

#[test]
fn refusals_name_the_cell() {
    let training = "opt = torch.optim.SGD(model.parameters(), 0.1)\nfor step in range(9):\n    \
                    loss = model(torch.randn(4, 8)).sum()\n    loss.backward()\n    opt.step()";
    let files = [
        ("train.ipynb#1", "import torch\nmodel = torch.nn.Linear(8, 8)"),
        ("train.ipynb#2", "scaler = 1\nloss = model(torch.randn(4, 8)).sum()"),
        ("train.ipynb#3", training),
    ];
    let refused = applied(&files, EditKind::AutocastFloat16).expect_err("a refusal");
    expect!["train.ipynb#2:1 uses the name `scaler` for something else"]
        .assert_eq(&refused.to_string());
}
