use expect_test::{Expect, expect};

use super::*;
use crate::fixture::{add_utilization, costs};
use ridgeline_compare::fixture::TRAIN;

fn check(marked: &str, width: usize, expected: Expect) {
    let (profile, costs, index) = costs(marked, None);
    let style = Style { color: false, width };
    let page = annotated_source(&profile, &costs, &index, style);
    for line in page.lines() {
        assert!(line.width() <= width.max(MIN_WIDTH), "{} columns: {line}", line.width());
    }
    // The first line keeps the indentation of the others, which `expect!` would remove.
    expected.assert_eq(&format!("{width} columns\n{page}"));
}

#[test]
fn a_file_in_80_columns() {
    check(
        TRAIN,
        80,
        expect![[r#"
                80 columns
                     time share            memory
                                                   1 │ class Net(nn.Module):
                                                   2 │     def __init__(self):
                                                   3 │         super().__init__()
                    65 ms   65% █████▎      88 MB  4 │         self.conv = nn.Conv2d(3, 64, 7)
                    15 ms   15% █▎         5.0 MB  5 │         self.head = nn.Linear(64, 10)
                                                   6 │
                                                   7 │     def forward(self, x):
                    50 ms   50% ████        80 MB  8 │         x = torch.relu(self.conv(x))
                    10 ms   10% ▊          4.0 MB  9 │         return self.head(
                                                  10 │             x.mean((2, 3)),
                                                  11 │         )
                                                  12 │
                                                  13 │ def train(model, loader, optimizer):
                   8.0 ms    8% ▋                 14 │     for x, y in loader:
                                                  15 │         # One step.
                   200 µs  0.2% ▏                 16 │         optimizer.zero_grad()
                    65 ms   65% █████▎      90 MB 17 │         loss = F.cross_entropy(model(x),…
                                                  18 │         loss.backward()
                    20 ms   20% █▋                19 │         optimizer.step()
                                                  20 │
                                                  21 │ def main():
                    85 ms   85% ██████▊     99 MB 22 │     model = Net()
                  93.2 ms   93% ███████▌    99 MB 23 │     train(model, loader, optimizer)
                                                  24 │
                  93.2 ms   93% ███████▌    99 MB 25 │ main()
            "#]],
    );
}

#[test]
fn a_file_in_120_columns() {
    check(
        TRAIN,
        120,
        expect![[r#"
                120 columns
                     time share           forward backward   memory
                                                                     1 │ class Net(nn.Module):
                                                                     2 │     def __init__(self):
                                                                     3 │         super().__init__()
                    65 ms   65% █████▎      20 ms    30 ms    88 MB  4 │         self.conv = nn.Conv2d(3, 64, 7)
                    15 ms   15% █▎         3.0 ms   7.0 ms   5.0 MB  5 │         self.head = nn.Linear(64, 10)
                                                                     6 │
                                                                     7 │     def forward(self, x):
                    50 ms   50% ████        20 ms    30 ms    80 MB  8 │         x = torch.relu(self.conv(x))
                    10 ms   10% ▊          3.0 ms   7.0 ms   4.0 MB  9 │         return self.head(
                                                                    10 │             x.mean((2, 3)),
                                                                    11 │         )
                                                                    12 │
                                                                    13 │ def train(model, loader, optimizer):
                   8.0 ms    8% ▋                                   14 │     for x, y in loader:
                                                                    15 │         # One step.
                   200 µs  0.2% ▏                                   16 │         optimizer.zero_grad()
                    65 ms   65% █████▎      25 ms    40 ms    90 MB 17 │         loss = F.cross_entropy(model(x), y)
                                                                    18 │         loss.backward()
                    20 ms   20% █▋                                  19 │         optimizer.step()
                                                                    20 │
                                                                    21 │ def main():
                    85 ms   85% ██████▊     25 ms    40 ms    99 MB 22 │     model = Net()
                  93.2 ms   93% ███████▌    25 ms    40 ms    99 MB 23 │     train(model, loader, optimizer)
                                                                    24 │
                  93.2 ms   93% ███████▌    25 ms    40 ms    99 MB 25 │ main()
            "#]],
    );
}

#[test]
fn wide_characters_tabs_and_control_characters() {
    check(
        "\tx = '漢字\u{1b}[2J🙂'  #= f50\n\t漢字漢字漢字漢字漢字漢字漢字漢字 = 1\n",
        60,
        expect![[r#"
                60 columns
                     time share
                    50 ms   50% ██   1 │     x = '漢字�[2J🙂'
                                     2 │     漢字漢字漢字漢字漢字漢字漢字漢…
            "#]],
    );
}

#[test]
fn stretches_without_costs_are_folded() {
    let without_costs = "pass\n".repeat(30);
    check(
        &format!("{without_costs}f()  #= f50\n{without_costs}g()  #= f50\n{without_costs}"),
        60,
        expect![[r#"
                60 columns
                     time share
                                     ⋯ 27 lines
                                     28 │ pass
                                     29 │ pass
                                     30 │ pass
                    50 ms   50% ██   31 │ f()
                                     32 │ pass
                                     33 │ pass
                                     34 │ pass
                                     ⋯ 24 lines
                                     59 │ pass
                                     60 │ pass
                                     61 │ pass
                    50 ms   50% ██   62 │ g()
                                     63 │ pass
                                     64 │ pass
                                     65 │ pass
                                     ⋯ 27 lines
            "#]],
    );
    check(
        "",
        60,
        expect![[r#"
                60 columns
                     time share
                                     1 │
            "#]],
    );
}

#[test]
fn the_function_around_an_expensive_line_is_shown() {
    let (in_class, in_function) = ("    a = 1\n".repeat(20), "        pass\n".repeat(20));
    let text = format!(
        "class N:\n{in_class}    def f(\n        self,\n    ):\n{in_function}        g()  #= f50\n"
    );
    check(
        &text,
        60,
        expect![[r#"
            60 columns
                 time share
                                  1 │ class N:
                                 ⋯ 20 lines
                                 22 │     def f(
                                 23 │         self,
                                 24 │     ):
                                 ⋯ 17 lines
                                 42 │         pass
                                 43 │         pass
                                 44 │         pass
                50 ms   50% ██   45 │         g()
        "#]],
    );
}

#[test]
fn what_is_about_all_numbers_is_below_the_headline() {
    for note in [
        "not training: no optimizer step within 20 s of the first forward pass",
        "The machine was busy: the program waited for the CPU 30% of the measured time",
    ] {
        let (mut profile, ..) = costs(TRAIN, None);
        profile.notes.push(note.into());
        let text = summary(&profile, Style { color: false, width: 80 });
        assert_eq!(text.lines().nth(3), Some(note), "{text}");
        assert_eq!(text.matches(note).count(), 1, "{text}");
    }
}

#[test]
fn a_summary() {
    let (mut profile, ..) = costs(TRAIN, None);
    profile.notes.push("Two kernels were still running when the recording began.".into());
    expect![[r#"
        320 samples/s · 100 ms · peak 120 MB / 23.7 GB
        NVIDIA H200 · PyTorch 2.15.0 · batch size 32
        median of 3 iterations, ±4%

        Time per iteration
          data                      8.0 ms     8% ███
          forward                    25 ms    25% █████████▎
          backward                   40 ms    40% ██████████████▊
          optimizer                20.2 ms    20% ███████▌
          other                     6.8 ms     7% ██▌

        Peak memory  120 MB / 23.7 GB
          weights                   9.0 MB     8% ██▊
          gradients                 9.0 MB     8% ██▊
          activations                90 MB    75% ███████████████████████████▊
          batch                      12 MB    10% ███▊

        Most expensive lines
              50 ms    50%  train.py:8  activations 80 MB
              20 ms    20%  train.py:19
             8.0 ms     8%  train.py:14
             6.5 ms     6%  train.py:17
             6.0 ms     6%  train.py:10  activations 4.0 MB
             4.0 ms     4%  train.py:11
             200 µs   0.2%  train.py:16
              10 µs  <0.1%  train.py:18

        Most expensive layers  self time, with backward pass and update
              65 ms    65%  conv  Conv2d
              15 ms    15%  head  Linear
             5.0 ms     5%  the model  Net

        Notes
          98% of op time and 100% of activations attributed to your code
          Two kernels were still running when the recording began.
    "#]]
    .assert_eq(&summary(&profile, Style { color: false, width: 80 }));
    expect![["No iteration was measured.\nunknown device\n"]]
        .assert_eq(&summary(&Profile::default(), Style { color: false, width: 80 }));
}

/// Checks the sections of a summary with device utilization.
fn check_utilization(on_gpu: bool, expected: Expect) {
    let (mut profile, ..) = costs(TRAIN, None);
    add_utilization(&mut profile, on_gpu);
    let page = summary(&profile, Style { color: false, width: 80 });
    let has_utilization = |section: &&str| {
        section.starts_with("320 samples") || section.starts_with("Most expensive l")
    };
    let sections: Vec<&str> = page.split("\n\n").filter(has_utilization).collect();
    expected.assert_eq(&sections.join("\n\n"));
}

#[test]
fn device_utilization() {
    check_utilization(
        true,
        expect![[r#"
            320 samples/s · 100 ms · peak 120 MB / 23.7 GB
            NVIDIA H200 · PyTorch 2.15.0 · batch size 32
            median of 3 iterations, ±4%
              GPU busy 72% · FP32 50% of the peak · bandwidth 21% of the peak
              tensor cores used · occupancy 62% · 12 launches (900 µs on the CPU)
              forward   GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak
                        tensor cores used · occupancy 62% · 12 launches (250 µs on the CPU)
              backward  GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak
                        tensor cores used · occupancy 62% · 12 launches (400 µs on the CPU)

            Most expensive lines
                  50 ms    50%  train.py:8  activations 80 MB
                        GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak
                        tensor cores used · occupancy 62% · 12 launches (500 µs on the CPU)
                  20 ms    20%  train.py:19
                 8.0 ms     8%  train.py:14
                 6.5 ms     6%  train.py:17
                        GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak
                        tensor cores used · occupancy 62% · 12 launches (65 µs on the CPU)
                 6.0 ms     6%  train.py:10  activations 4.0 MB
                 4.0 ms     4%  train.py:11
                 200 µs   0.2%  train.py:16
                  10 µs  <0.1%  train.py:18

            Most expensive layers  self time, with backward pass and update
                  65 ms    65%  conv  Conv2d
                        GPU busy 80% · FP32 50% of the peak · bandwidth 21% of the peak
                        tensor cores used · occupancy 62% · 12 launches (500 µs on the CPU)
                  15 ms    15%  head  Linear
                 5.0 ms     5%  the model  Net"#]],
    );
    check_utilization(
        false,
        expect![[r#"
            320 samples/s · 100 ms · peak 120 MB / 23.7 GB
            NVIDIA H200 · PyTorch 2.15.0 · batch size 32
            median of 3 iterations, ±4%
              72% in PyTorch ops
              forward   80% in PyTorch ops
              backward  80% in PyTorch ops

            Most expensive lines
                  50 ms    50%  train.py:8  activations 80 MB  80% in PyTorch ops
                  20 ms    20%  train.py:19
                 8.0 ms     8%  train.py:14
                 6.5 ms     6%  train.py:17  80% in PyTorch ops
                 6.0 ms     6%  train.py:10  activations 4.0 MB
                 4.0 ms     4%  train.py:11
                 200 µs   0.2%  train.py:16
                  10 µs  <0.1%  train.py:18

            Most expensive layers  self time, with backward pass and update
                  65 ms    65%  conv  Conv2d  80% in PyTorch ops
                  15 ms    15%  head  Linear
                 5.0 ms     5%  the model  Net"#]],
    );
}

#[test]
fn colors_do_not_change_the_text() {
    let (profile, costs, index) = costs(TRAIN, None);
    let page = |color| annotated_source(&profile, &costs, &index, Style { color, width: 90 });
    let (plain, colored) = (page(false), page(true));
    assert_ne!(plain, colored);
    let without_colors: String = colored
        .split('\u{1b}')
        .enumerate()
        .map(
            |(at, part)| {
                if at == 0 { part } else { part.split_once('m').map_or("", |(_, rest)| rest) }
            },
        )
        .collect();
    assert_eq!(without_colors, plain);
}
