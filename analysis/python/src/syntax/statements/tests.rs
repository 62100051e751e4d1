use expect_test::{Expect, expect};

use crate::SourceIndex;

/// Checks the statements, each shown as `lines kind scope header`.
fn check(text: &str, expected: Expect) {
    let index = SourceIndex::new(text);
    let shown: String = index
        .statements()
        .iter()
        .map(|found| {
            let scope = index.scope_name(found.scope as usize);
            let broken = if found.broken { " broken" } else { "" };
            let header = &text[found.header.clone()];
            let (first, last, kind) = (found.first_line, found.last_line, found.kind);
            format!("{first}-{last} {kind:?}{broken} [{scope}] {header:?}\n")
        })
        .collect();
    expected.assert_eq(&shown);
}

#[test]
fn a_for_is_only_its_header() {
    check(
        "for x, y in loader:  # batches\n    f(x)\nelse:\n    g()\n",
        expect![[r#"
                1-1 For [] "for x, y in loader:"
                2-2 Simple [] "f(x)"
                3-3 Block [] "else:"
                4-4 Simple [] "g()"
            "#]],
    );
}

#[test]
fn scopes_have_qualified_names() {
    check(
        "@dataclass\nclass Net(Module):\n    @property\n    def forward(\n        self, x: int,\n    ) -> int:\n        return x\n",
        expect![[r#"
                1-2 Class [] "@dataclass\nclass Net(Module):"
                3-6 Function [Net] "@property\n    def forward(\n        self, x: int,\n    ) -> int:"
                7-7 Simple [Net.forward] "return x"
            "#]],
    );
}

#[test]
fn a_statement_spans_its_lines() {
    check(
        "x = conv(\n    a,\n    {1: 2},\n)\ny = [\n    f(i) for i in a\n]; z = 1\n",
        expect![[r#"
                1-4 Simple [] "x = conv(\n    a,\n    {1: 2},\n)"
                5-7 Simple [] "y = [\n    f(i) for i in a\n]"
                7-7 Simple [] "z = 1"
            "#]],
    );
}

#[test]
fn blocks_and_clauses() {
    check(
        "with a as b, \\\n  c:\n  try: f()\n  except E: pass\n  finally: g()\nif a: b\nelif c: d\nmatch x:\n  case {1: y}:\n    z\nwhile (a :=\n  b): pass\nasync def f():\n  async for i in j: await k\n",
        expect![[r#"
                1-2 Block [] "with a as b, \\\n  c:"
                3-3 Block [] "try:"
                3-3 Simple [] "f()"
                4-4 Block [] "except E:"
                4-4 Simple [] "pass"
                5-5 Block [] "finally:"
                5-5 Simple [] "g()"
                6-6 Block [] "if a:"
                6-6 Simple [] "b"
                7-7 Block [] "elif c:"
                7-7 Simple [] "d"
                8-8 Block [] "match x:"
                9-9 Block [] "case {1: y}:"
                10-10 Simple [] "z"
                11-12 While [] "while (a :=\n  b):"
                12-12 Simple [] "pass"
                13-13 Function [] "async def f():"
                14-14 For [f] "async for i in j:"
                14-14 Simple [f] "await k"
            "#]],
    );
}

#[test]
fn an_unfinished_line_does_not_affect_others() {
    check(
        "def f(x):\n    a = g(x)\n    b = h(a, \n    c = k(b)\n    return c\n\nclass N:\n    pass\n",
        expect![[r#"
                1-1 Function [] "def f(x):"
                2-2 Simple [f] "a = g(x)"
                7-7 Class [] "class N:"
                8-8 Simple [N] "pass"
            "#]],
    );
}

#[test]
fn line_ends_of_every_kind() {
    check(
        "\u{feff}a = 1\r\nif b:\r\tc = '\0'\rd = \"é🙂\"\n\r\u{c}e = 2",
        expect![[r#"
            1-1 Simple [] "a = 1"
            2-2 Block [] "if b:"
            3-3 Simple [] "c = '\0'"
            4-4 Simple [] "d = \"é🙂\""
            6-6 Simple [] "e = 2"
        "#]],
    );
}
