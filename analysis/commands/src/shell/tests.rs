use expect_test::{Expect, expect};

use super::*;

#[track_caller]
fn check(text: &str, expected: Expect) {
    let positional = ["one".to_owned(), "t w o".to_owned()];
    let initial = InitialState { positional: Some(&positional), ..InitialState::default() };
    let lines: Vec<String> = commands(text, initial)
        .iter()
        .map(|command| {
            let shown =
                |word: &Word| format!("{}{}", word.text, if word.is_certain { "" } else { "?" });
            let words: Vec<String> = command.words.iter().map(shown).collect();
            let environment: String = command
                .environment
                .iter()
                .map(|(name, value)| format!("{name}={} ", shown(value)))
                .collect();
            let folder = command.folder.as_deref().unwrap_or("?");
            format!("{}: {folder}{environment}[{}]", command.line, words.join("|"))
        })
        .collect();
    expected.assert_eq(&lines.join("\n"));
}

#[test]
fn words_and_quotes() {
    check(
        "python train.py 'a b' \"c d\" e\\ f \\\n  --x=1 # more\n",
        expect!["1: [python|train.py|a b|c d|e f|--x=1]"],
    );
    check("python a.py --name '$X' \"it's\" ''\n", expect!["1: [python|a.py|--name|$X|it's|]"]);
    check(
        "python a.py && python b.py; python c.py | tee log > out 2>&1 &\n",
        expect![[r#"
            1: [python|a.py]
            1: [python|b.py]
            1: [python|c.py]
            1: [tee|log]"#]],
    );
    check("python train.py \\\r\n  --x 1\r\n", expect!["1: [python|train.py|--x|1]"]);
}

#[test]
fn variables() {
    check(
        "DATA=data/x\nOPTS=\"--a 1 --b\"\npython t.py $DATA ${DATA}/y $OPTS \"$OPTS\"\n",
        expect!["3: [python|t.py|data/x|data/x/y|--a|1|--b|--a 1 --b]"],
    );
    check(
        "python t.py $UNKNOWN ${SEED:-3} $(date) `date` *.csv\n",
        expect!["1: [python|t.py|$UNKNOWN?|3|?|?|*.csv?]"],
    );
    check(
        "A=1 python t.py\nexport B=2\nC=3\npython u.py $C\n",
        expect![[r#"
            1: A=1 [python|t.py]
            4: B=2 [python|u.py|3]"#]],
    );
    check("python t.py $1 \"$2\" \"$@\"\n", expect!["1: [python|t.py|one|t w o|one|t w o]"]);
    check(
        "for s in 1 2; do\n  python t.py --seed $s\ndone\n",
        expect![[r#"
            2: [python|t.py|--seed|1]
            3: [done]"#]],
    );
    check("A=$A$A$A\nA=$A$A\npython t.py $A\n", expect!["3: [python|t.py|$A$A$A$A$A$A?]"]);
}

#[test]
fn folders_and_placeholders() {
    check(
        "cd examples/mnist\npython main.py\ncd $X\npython b.py\n",
        expect![[r#"
            2: examples/mnist/[python|main.py]
            4: ?[python|b.py]"#]],
    );
    check(
        "python t.py --data <path to data> [options] ... /path/to/x\n",
        expect!["1: [python|t.py|--data|<path to data>?|[options]?|...?|/path/to/x?]"],
    );
    check(
        "python t.py < in.txt\ncat <<EOF > x\npython no.py\nEOF\npython y.py\n",
        expect![[r#"
            1: [python|t.py]
            2: [cat]
            5: [python|y.py]"#]],
    );
}

#[test]
fn hostile_texts_terminate() {
    let long = "a".repeat(1 << 20);
    assert_eq!(commands(&long, InitialState::default()).len(), 1);
    let _ = commands(&"'".repeat(100_001), InitialState::default());
    let _ = commands(&"$(".repeat(100_000), InitialState::default());
    let _ = commands(&"<<".repeat(100_000), InitialState::default());
    let doubling = "A=$A$A\n".repeat(1_000);
    let _ = commands(&format!("A=aaaaaaaa\n{doubling}"), InitialState::default());
    let many = "x;".repeat(100_000);
    assert_eq!(commands(&many, InitialState::default()).len(), MAX_COMMANDS);
}
