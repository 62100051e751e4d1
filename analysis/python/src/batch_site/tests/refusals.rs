//! Batch sizes that cannot be edited, with the reason; and malformed text.

use super::*;

#[test]
fn arithmetic() {
    check_refused(
        &format!("batch_size = 64\nloader = DataLoader(ds, batch_size // world_size)\n{LOOP}"),
        "computes the batch size: `batch_size // world_size`",
    );
    // A run with the number itself shows that the world size is one.
    let text =
        format!("batch_size = 64\nloader = DataLoader(ds, batch_size // world_size)\n{LOOP}");
    check_with(&[("train.py", &text)], |entry| entry.measured = Some(64), "train.py:1 64");
    check_script(
        &format!("batch_size = 64\nloader = DataLoader(ds, batch_size * 2)\n{LOOP}"),
        "train.py:1 64",
    );
}

#[test]
fn computed_or_entered_sizes() {
    check_refused(
        &format!("loader = DataLoader(ds, batch_size=find_batch_size(model))\n{LOOP}"),
        "find_batch_size",
    );
    check_refused(&format!("loader = DataLoader(ds, batch_size=int(input()))\n{LOOP}"), "input");
    check_refused(&format!("loader = DataLoader(ds)\n{LOOP}"), "without batch_size");
    check_refused(&format!("from lib import loader\n{LOOP}"), "");
}

#[test]
fn two_numbers() {
    check_refused(
        "import torch\nx = torch.randn(32, 10)\ny = torch.randint(0, 9, (32,))\nfor _ in range(9):\n    f(model(x), y).backward()\n    opt.step()\n",
        "2 times (lines 2, 3): assign it to one variable",
    );
    check_refused(
        &format!("if debug:\n    bs = 2\nelse:\n    bs = 32\nloader = DataLoader(ds, bs)\n{LOOP}"),
        "could be any of",
    );
}

#[test]
fn no_batch_size() {
    check_refused("print('hello')\n", "no DataLoader");
    let (texts, _) = project(&[("train.py", "")]);
    let missing = Entry { path: "other.py".to_owned(), ..Entry::default() };
    assert_eq!(batch_site(&texts, &missing).unwrap_err().message, "other.py does not exist");
}

#[test]
fn cycles_terminate() {
    check_refused(
        "def f(a):\n    return g(a)\ndef g(a):\n    return f(a)\nfor x in f(1):\n    h(x).backward()\n",
        "",
    );
    check_refused("a = b\nb = a\nfor x in DataLoader(d, a):\n    f(x).backward()\n", "");
    check_refused(
        "class A(A):\n    pass\nfor x in DataLoader(d, A.size):\n    f(x).backward()\n",
        "",
    );
    check_refused_with(
        &[
            (
                "train.py",
                "from other import size\nfor x in DataLoader(d, size):\n    f(x).backward()\n",
            ),
            ("other.py", "from train import size\n"),
        ],
        |_| {},
        "",
    );
    let chain: String = (0..500).map(|at| format!("a{} = a{at}\n", at + 1)).collect();
    check_refused(&format!("{chain}for x in DataLoader(d, a500):\n    f(x).backward()\n"), "");
}

#[test]
fn malformed_texts() {
    for text in [
        "for x in (((((:\n",
        "DataLoader(\n",
        "def f(a=, b):\n  a.b = 3\n",
        "\0\0",
        "for x in DataLoader(d, 99999999999999999999999):\n    x.backward()\n",
    ] {
        let (texts, entry) = project(&[("train.py", text)]);
        assert!(batch_site(&texts, &entry).is_err(), "{text:?}");
    }
    let deep = format!(
        "x = {}1{}\nfor y in DataLoader(d, x):\n    y.backward()\n",
        "(".repeat(3000),
        ")".repeat(3000)
    );
    let (texts, entry) = project(&[("train.py", &deep)]);
    let _ = batch_site(&texts, &entry);
    let sum =
        format!("x = {}1\nfor y in DataLoader(d, x):\n    y.backward()\n", "1 + ".repeat(3000));
    let (texts, entry) = project(&[("train.py", &sum)]);
    let _ = batch_site(&texts, &entry);
    let yaml = format!("a: {}{}\n", "[".repeat(20_000), "]".repeat(20_000));
    let (texts, entry) = project(&[
        (
            "train.py",
            "c = yaml.safe_load(open('c.yaml'))\nfor y in DataLoader(d, c['a']):\n    y.backward()\n",
        ),
        ("c.yaml", &yaml),
    ]);
    assert!(batch_site(&texts, &entry).is_err());
}
