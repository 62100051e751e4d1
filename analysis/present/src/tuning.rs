//! The page of `ridgeline tune`: a row for each optimization that was tried, and the result of all that were kept.

use ridgeline_base::printable::clean;
use ridgeline_base::units;
use ridgeline_optimize::tuning::{Measured, Trial, Verdict};

use super::what_ifs::speedup;

/// Formats the trials, and the total of those that were kept.
pub fn page(trials: &[Trial], memory_limit: Option<f64>, total: Option<&Measured>) -> String {
    if trials.is_empty() {
        return "No optimization with an automatic edit is predicted to help.\n".to_owned();
    }
    let mut text =
        format!("{:<18} {:>9} {:>9}   result\n", "tried in turn", "predicted", "measured");
    for trial in trials {
        let (measured, result) = match &trial.result {
            Ok(measured) => {
                let rate = measured.sides.speedup().map_or("unknown".to_owned(), speedup);
                let loss = measured.check.as_ref().map(|check| format!(", {}", check.words()));
                (
                    rate,
                    verdict(measured.verdict(memory_limit)).to_owned() + &loss.unwrap_or_default(),
                )
            }
            Err(why) => (String::new(), format!("not tried: {why}")),
        };
        let row = format!(
            "{:<18} {:>9} {measured:>9}   {result}",
            trial.name,
            format!("~{}", speedup(trial.predicted))
        );
        text += &format!("{}\n", clean(row.trim_end()));
    }
    text += "\n";
    text += &match total {
        Some(total) => all_together(total, memory_limit),
        None => "Nothing is kept: no optimization was measured to help.\n".to_owned(),
    };
    text
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "kept",
        Verdict::NotFaster => "no gain",
        Verdict::TooNoisy => "the machine was too busy to measure it",
        Verdict::TooMuchMemory => "over the memory limit",
        Verdict::ChangesLoss => "not kept",
    }
}

/// `All together: 1.4× (130 ms to 93 ms), peak 40 MB to 30 MB, same loss within 0.3% over 20 backward passes`.
fn all_together(total: &Measured, memory_limit: Option<f64>) -> String {
    let sides = &total.sides;
    let mut text = format!(
        "All together: {} ({} to {})",
        sides.speedup().map_or("unknown".to_owned(), speedup),
        units::duration(sides.before_ns),
        units::duration(sides.after_ns)
    );
    if let (Some(before), Some(after)) = (sides.before_peak_bytes, sides.after_peak_bytes) {
        text += &format!(", peak {} to {}", units::bytes(before), units::bytes(after));
    }
    if let Some(check) = &total.check {
        text += &format!(", {}", clean(&check.words()));
    }
    text.push('\n');
    match total.verdict(memory_limit) {
        Verdict::Kept => text,
        Verdict::ChangesLoss => text + "Together they are not kept.\n",
        found => text + &format!("Together they are not kept: {}.\n", verdict(found)),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use ridgeline_optimize::accuracy::Sides;
    use ridgeline_optimize::numerics::{Check, Trajectory, compare, tolerance};

    use super::*;

    fn sides(after_ns: f64) -> Sides {
        Sides {
            before_ns: 2e6,
            after_ns,
            before_peak_bytes: Some(4e7),
            after_peak_bytes: Some(3e7),
        }
    }

    fn measured(after_ns: f64, drift: f64, check: Option<Check>) -> Measured {
        Measured { sides: sides(after_ns), drift, check }
    }

    fn losses(last: f64) -> Check {
        let of =
            |last: f64| Trajectory { losses: vec![Some(1.0), Some(last)], ..Trajectory::default() };
        compare([&of(1.0), &of(1.0)], &of(last), tolerance(&[]).expect("a tolerance"))
    }

    fn check(trials: &[Trial], total: Option<&Measured>, expected: Expect) {
        expected.assert_eq(&page(trials, None, total));
    }

    #[test]
    fn trials_and_their_total() {
        let trial = |name: &str, result: Result<(f64, Option<Check>), &str>| Trial {
            name: name.to_owned(),
            predicted: 1.25,
            result: result
                .map(|(after_ns, check)| measured(after_ns, 0.0, check))
                .map_err(str::to_owned),
        };
        let trials = [
            trial("amp-bf16", Ok((1.6e6, Some(losses(1.001))))),
            trial("compile", Ok((1e6, Some(losses(1.5))))),
            trial("fused-optimizer", Ok((2.1e6, None))),
            trial("foreach-optimizer", Err("already applied: the optimizer is fused")),
        ];
        check(
            &trials,
            Some(&measured(1.6e6, 0.0, Some(losses(1.001)))),
            expect![[r#"
                tried in turn      predicted  measured   result
                amp-bf16               ~1.2×      1.2×   kept, same loss within 0.05% over 2 backward passes
                compile                ~1.2×      2.0×   not kept, loss off by 25.0% over 2 backward passes (accepted: 1% and 5%)
                fused-optimizer        ~1.2×     0.95×   no gain
                foreach-optimizer      ~1.2×             not tried: already applied: the optimizer is fused

                All together: 1.2× (2.0 ms to 1.6 ms), peak 40 MB to 30 MB, same loss within 0.05% over 2 backward passes
            "#]],
        );
        check(
            &trials[2..3],
            None,
            expect![[r#"
                tried in turn      predicted  measured   result
                fused-optimizer        ~1.2×     0.95×   no gain

                Nothing is kept: no optimization was measured to help.
            "#]],
        );
        check(
            &trials[..1],
            Some(&measured(1.6e6, 0.5, None)),
            expect![[r#"
                tried in turn      predicted  measured   result
                amp-bf16               ~1.2×      1.2×   kept, same loss within 0.05% over 2 backward passes

                All together: 1.2× (2.0 ms to 1.6 ms), peak 40 MB to 30 MB
                Together they are not kept: the machine was too busy to measure it.
            "#]],
        );
        check(
            &[],
            None,
            expect![[r#"
                No optimization with an automatic edit is predicted to help.
            "#]],
        );
    }
}
