//! The lines of the document: one entry for each statement.

use std::ops::Range;

use serde::Serialize;

use super::{Kinds, kinds, milliseconds, rounded, sum};
use crate::cost_map::expression_span;
use crate::explained::{UtilizationEntry, utilization_entry};
use ridgeline_profile::utilization::Utilization;
use ridgeline_profile::{
    CallerCost, DeviceTime, ExpressionCost, InstanceCost, LineCost, OperatorCost, Phase, Profile,
    Provenance,
};
use ridgeline_python::{SourceIndex, expression_label};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Line {
    file: String,
    line: u32,
    end_line: u32,
    scope: Option<String>,
    self_ms: f64,
    total_ms: f64,
    forward_ms: f64,
    backward_ms: f64,
    optimizer_ms: f64,
    data_ms: f64,
    other_ms: f64,
    calls: f64,
    memory: Kinds,
    total_memory: Kinds,
    estimated: bool,
    device: Option<LineDevice>,
    modules: Vec<String>,
    expressions: Vec<Expression>,
    callers: Vec<Caller>,
    instances: Vec<Instance>,
    operators: Vec<Operator>,
    utilization: Option<UtilizationEntry>,
    #[serde(skip)]
    own: (Utilization, f64),
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
struct LineDevice {
    kernel_ms: f64,
    launch_ms: f64,
    idle_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Caller {
    file: String,
    line: u32,
    total_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Instance {
    module: String,
    total_ms: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Expression {
    line: u32,
    column: u32,
    end_line: u32,
    end_column: u32,
    text: String,
    total_ms: f64,
    forward_ms: f64,
    backward_ms: f64,
    calls: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct Operator {
    name: String,
    phase: Option<&'static str>,
    calls: f64,
    time_ms: f64,
    inputs: String,
    flops: Option<f64>,
    bytes: Option<f64>,
}

pub(super) fn lines_of_file(
    profile: &Profile,
    path: &str,
    costs: &[LineCost],
    source: Option<&SourceIndex>,
) -> Vec<Line> {
    let mut entries: Vec<Line> = Vec::new();
    for cost in costs {
        let statement =
            source.and_then(|source| source.statements().get(source.statement_on_line(cost.line)?));
        let (first, last) = statement.map_or((cost.line, cost.line), |statement| {
            (statement.first_line.min(cost.line), statement.last_line.max(cost.line))
        });
        let mut entry = line_entry(profile, path, cost, (first, last));
        if let (Some(source), Some(statement)) = (source, statement) {
            entry.expressions = expressions(cost, source, &statement.header);
        }
        match entries.last_mut().filter(|before| before.line == first && before.end_line == last) {
            Some(before) => merge(profile, before, entry),
            None => entries.push(entry),
        }
    }
    entries
}

fn line_entry(profile: &Profile, path: &str, cost: &LineCost, lines: (u32, u32)) -> Line {
    let total = &cost.total_time;
    Line {
        file: path.to_owned(),
        line: lines.0,
        end_line: lines.1,
        scope: Some(cost.scope.clone()).filter(|scope| !scope.is_empty()),
        self_ms: milliseconds(cost.self_time.total()),
        total_ms: milliseconds(total.total()),
        forward_ms: milliseconds(total.forward),
        backward_ms: milliseconds(total.backward),
        optimizer_ms: milliseconds(total.optimizer),
        data_ms: milliseconds(total.data),
        other_ms: milliseconds(total.other),
        calls: rounded(cost.calls, 1e3),
        memory: kinds(&cost.self_memory),
        total_memory: kinds(&cost.total_memory),
        estimated: cost.provenance == Provenance::Estimated,
        device: cost.device_time.map(|time| line_device(&time)),
        modules: cost
            .modules
            .iter()
            .filter_map(|module| Some(profile.modules.get(module.0 as usize)?.path.clone()))
            .collect(),
        expressions: Vec::new(),
        callers: cost.callers.iter().filter_map(|caller| caller_entry(profile, caller)).collect(),
        instances: cost.instances.iter().filter_map(|one| instance_entry(profile, one)).collect(),
        operators: cost.operators.iter().map(operator_entry).collect(),
        utilization: cost
            .utilization
            .map(|own| utilization_entry(&own, cost.self_time.total(), profile)),
        own: (cost.utilization.unwrap_or_default(), cost.self_time.total()),
    }
}

/// Merges a line into the entry of its statement. Lines of one statement run at different times, so
/// their costs add up. A multi-line statement returns to its first line after each call in it, so
/// the number of executions is that of the line that ran least.
fn merge(profile: &Profile, into: &mut Line, other: Line) {
    let add = |into: &mut f64, other: f64| *into = rounded(*into + other, 1e6);
    add(&mut into.self_ms, other.self_ms);
    add(&mut into.total_ms, other.total_ms);
    add(&mut into.forward_ms, other.forward_ms);
    add(&mut into.backward_ms, other.backward_ms);
    add(&mut into.optimizer_ms, other.optimizer_ms);
    add(&mut into.data_ms, other.data_ms);
    add(&mut into.other_ms, other.other_ms);
    into.calls = match (into.calls, other.calls) {
        (calls, 0.0) | (0.0, calls) => calls,
        (a, b) => a.min(b),
    };
    into.memory = sum(into.memory, other.memory);
    into.total_memory = sum(into.total_memory, other.total_memory);
    into.estimated |= other.estimated;
    into.scope = into.scope.take().or(other.scope);
    into.device = match (into.device, other.device) {
        (Some(a), Some(b)) => Some(LineDevice {
            kernel_ms: rounded(a.kernel_ms + b.kernel_ms, 1e6),
            launch_ms: rounded(a.launch_ms + b.launch_ms, 1e6),
            idle_ms: rounded(a.idle_ms + b.idle_ms, 1e6),
        }),
        (a, b) => a.or(b),
    };
    into.own.0.add(&other.own.0);
    into.own.1 += other.own.1;
    if into.utilization.is_some() || other.utilization.is_some() {
        into.utilization = Some(utilization_entry(&into.own.0, into.own.1, profile));
    }
    for module in other.modules {
        if !into.modules.contains(&module) {
            into.modules.push(module);
        }
    }
    into.expressions.extend(other.expressions);
    for caller in other.callers {
        let known = |one: &&mut Caller| (&one.file, one.line) == (&caller.file, caller.line);
        match into.callers.iter_mut().find(known) {
            Some(one) => add(&mut one.total_ms, caller.total_ms),
            None => into.callers.push(caller),
        }
    }
    for instance in other.instances {
        match into.instances.iter_mut().find(|one| one.module == instance.module) {
            Some(one) => add(&mut one.total_ms, instance.total_ms),
            None => into.instances.push(instance),
        }
    }
    into.callers.sort_by(|a, b| b.total_ms.total_cmp(&a.total_ms));
    into.instances.sort_by(|a, b| b.total_ms.total_cmp(&a.total_ms));
    into.operators.extend(other.operators);
    into.operators.sort_by(|a, b| b.time_ms.total_cmp(&a.time_ms));
}

/// Returns the expressions of a line in a statement or its header. `source` is the text that ran.
fn expressions(cost: &LineCost, source: &SourceIndex, within: &Range<usize>) -> Vec<Expression> {
    let lines = source.lines();
    let entry = |expression: &ExpressionCost| {
        let (at, times) = (expression.range, &expression.total_time);
        let Range { start, end } = expression_span(source, at, Some)?;
        // The steps of a `for` have the range of the whole statement in some versions of Python.
        if start < within.start || within.end < end {
            return None;
        }
        let column =
            |offset: usize, line| u32::try_from(offset - lines.start_of(line)).unwrap_or(u32::MAX);
        Some(Expression {
            line: at.line,
            column: column(start, at.line),
            end_line: at.end_line,
            end_column: column(end, at.end_line),
            text: expression_label(source, &(start..end)),
            total_ms: milliseconds(times.total()),
            forward_ms: milliseconds(times.forward),
            backward_ms: milliseconds(times.backward),
            calls: rounded(expression.calls, 1e3),
        })
    };
    cost.expressions.iter().filter_map(entry).collect()
}

fn caller_entry(profile: &Profile, caller: &CallerCost) -> Option<Caller> {
    let file = profile.files.get(caller.file.0 as usize)?.path.clone();
    Some(Caller { file, line: caller.line, total_ms: milliseconds(caller.time_ns) })
}

fn instance_entry(profile: &Profile, instance: &InstanceCost) -> Option<Instance> {
    let module = profile.modules.get(instance.module.0 as usize)?.path.clone();
    Some(Instance { module, total_ms: milliseconds(instance.time_ns) })
}

fn operator_entry(operator: &OperatorCost) -> Operator {
    Operator {
        name: operator.name.clone(),
        phase: operator.phase.map(Phase::name),
        calls: rounded(operator.calls, 1e3),
        time_ms: milliseconds(operator.time_ns),
        inputs: operator.inputs.clone(),
        flops: operator.flops.map(f64::round),
        bytes: operator.bytes.map(f64::round),
    }
}

fn line_device(time: &DeviceTime) -> LineDevice {
    LineDevice {
        kernel_ms: milliseconds(time.kernel_ns),
        launch_ms: milliseconds(time.launch_ns),
        idle_ms: milliseconds(time.idle_ns),
    }
}
