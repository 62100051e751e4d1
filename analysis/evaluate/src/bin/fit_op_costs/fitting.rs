//! Levenberg-Marquardt on the logarithms of predicted over measured times, with weights that limit
//! the influence of outliers.

use std::collections::BTreeSet;

use ridgeline_operators::op_cost::Coefficients;

use crate::cases::Case;
use crate::parameters::Parameters;

pub(crate) struct Fit<'a> {
    cases: &'a [Case],
    parameters: &'a Parameters,
    /// For each parameter and case, the plans whose time it changes.
    affected: Vec<Vec<Vec<u32>>>,
}

/// Errors beyond this have decreasing weight.
const OUTLIER_ERROR: f64 = 0.15;
/// The number of parts in cross-validation.
const PARTS: u64 = 6;
/// The maximum number of iterations of a cross-validation fit; it ends sooner without improvement.
const MAX_ITERATIONS: usize = 8;
/// The step of numerical derivatives.
const STEP: f64 = 1e-3;

impl<'a> Fit<'a> {
    pub(crate) fn new(cases: &'a [Case], parameters: &'a Parameters) -> Fit<'a> {
        let start = parameters.start();
        let base = parameters.coefficients(&start);
        let affected = (0..start.len())
            .map(|index| {
                let moved = parameters.coefficients(&moved(&start, index));
                let affected_plans = |case: &Case| {
                    let plans = (0_u32..).zip(&case.plans);
                    let changes = plans.filter(|(_, (plan, _))| {
                        case.plan_ns(plan, &base) != case.plan_ns(plan, &moved)
                    });
                    changes.map(|(index, _)| index).collect()
                };
                cases.iter().map(affected_plans).collect()
            })
            .collect();
        Fit { cases, parameters, affected }
    }

    /// Returns the logarithm of predicted over measured time for each case.
    pub(crate) fn errors(&self, point: &[f64]) -> Vec<f64> {
        let coefficients = self.parameters.coefficients(point);
        self.cases.iter().map(|case| case.error(&coefficients)).collect()
    }

    /// Fits on the chosen cases.
    pub(crate) fn run(
        &self,
        chosen: impl Fn(&Case) -> bool,
        from: &[f64],
        max_iterations: usize,
    ) -> Vec<f64> {
        let chosen: Vec<usize> =
            (0..self.cases.len()).filter(|index| chosen(&self.cases[*index])).collect();
        let mut point = from.to_vec();
        let mut damping = 1e-2;
        let mut loss = self.loss(&chosen, &point);
        for _ in 0..max_iterations {
            let (matrix, gradient) = self.normal(&chosen, &point);
            let mut better = false;
            for _ in 0..6 {
                let mut damped = matrix.clone();
                for (index, row) in damped.iter_mut().enumerate() {
                    row[index] *= 1.0 + damping;
                }
                let Some(step) = self.step(&damped, &gradient, &point) else { break };
                let tried: Vec<f64> = (point.iter().zip(&step))
                    .zip(&self.parameters.list)
                    .map(|((value, step), parameter)| {
                        let (low, high) = parameter.limits;
                        (value - step.clamp(-0.7, 0.7)).clamp(low.ln(), high.ln())
                    })
                    .collect();
                let found = self.loss(&chosen, &tried);
                if found < loss {
                    better = loss - found > 3e-4 * loss;
                    (point, loss) = (tried, found);
                    damping = (damping / 5.0_f64).max(1e-6);
                    break;
                }
                damping *= 5.0;
            }
            if !better {
                break;
            }
        }
        point
    }

    /// Returns the step within the limits: parameters at a limit stay there, and the step is solved
    /// for the others.
    fn step(&self, matrix: &[Vec<f64>], gradient: &[f64], point: &[f64]) -> Option<Vec<f64>> {
        let (mut matrix, mut gradient) = (matrix.to_vec(), gradient.to_vec());
        loop {
            let step = solve(matrix.clone(), gradient.clone())?;
            let outward = |index: &usize| {
                let (low, high) = self.parameters.list[*index].limits;
                let (at, by) = (point[*index], step[*index]);
                (at <= low.ln() + 1e-9 && by > 1e-12) || (at >= high.ln() - 1e-9 && by < -1e-12)
            };
            let fixed: Vec<usize> = (0..step.len()).filter(outward).collect();
            if fixed.is_empty() {
                return Some(step);
            }
            for index in fixed {
                gradient[index] = 0.0;
                matrix.iter_mut().for_each(|row| row[index] = 0.0);
                matrix[index].fill(0.0);
                matrix[index][index] = 1.0;
            }
        }
    }

    /// For each parameter, returns the elasticity of the times of a set: their relative change for
    /// a relative change of it.
    pub(crate) fn shares(&self, point: &[f64], chosen: impl Fn(&Case) -> bool) -> Vec<f64> {
        let errors = self.errors(point);
        let moved = (0..point.len()).map(|index| {
            let changed_errors = self.errors(&moved(point, index));
            let of =
                errors.iter().zip(&changed_errors).zip(self.cases).filter(|(_, case)| chosen(case));
            let slopes: Vec<f64> = of.map(|((a, b), _)| (b - a) / STEP).collect();
            slopes.iter().sum::<f64>() / slopes.len().max(1) as f64
        });
        moved.collect()
    }

    /// Returns the error of each case by a fit that has not seen its group. Groups are model
    /// families for image models, and devices for the rest.
    pub(crate) fn cross_validate(&self) -> Vec<f64> {
        let mut errors = vec![f64::NAN; self.cases.len()];
        let devices: BTreeSet<&str> = self.cases.iter().filter_map(Case::left_out_device).collect();
        for device in devices {
            let unseen = |case: &Case| case.left_out_device() == Some(device);
            // Every fit starts at the priors, because other starts depend on the held-out cases.
            let point = self.run(|case| !unseen(case), &self.parameters.start(), MAX_ITERATIONS);
            self.set_errors(&unseen, &point, &mut errors);
        }
        for part in 0..PARTS {
            let unseen = |case: &Case| case.part(PARTS) == Some(part);
            let point = self.run(|case| !unseen(case), &self.parameters.start(), MAX_ITERATIONS);
            self.set_errors(&unseen, &point, &mut errors);
        }
        errors
    }

    fn set_errors(&self, unseen: &dyn Fn(&Case) -> bool, point: &[f64], errors: &mut [f64]) {
        let coefficients = self.parameters.coefficients(point);
        for (case, error) in self.cases.iter().zip(errors) {
            if unseen(case) {
                *error = case.error(&coefficients);
            }
        }
    }

    fn loss(&self, chosen: &[usize], point: &[f64]) -> f64 {
        let coefficients = self.parameters.coefficients(point);
        let case_loss = |index: &usize| {
            let case = &self.cases[*index];
            let error = case.error(&coefficients) / OUTLIER_ERROR;
            case.weight * OUTLIER_ERROR * OUTLIER_ERROR * (1.0 + error * error).ln()
        };
        let priors = self.parameters.list.iter().zip(point).map(|(parameter, value)| {
            let distance = (value - parameter.prior.ln()) / parameter.spread;
            PRIOR_WEIGHT * distance * distance
        });
        chosen.iter().map(case_loss).sum::<f64>() + priors.sum::<f64>()
    }

    /// Returns the normal equations of weighted least squares.
    fn normal(&self, chosen: &[usize], point: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
        let count = point.len();
        let base = self.parameters.coefficients(point);
        let changed: Vec<Coefficients> =
            (0..count).map(|index| self.parameters.coefficients(&moved(point, index))).collect();
        let mut matrix = vec![vec![0.0; count]; count];
        let mut gradient = vec![0.0; count];
        for index in chosen {
            let case = &self.cases[*index];
            let times: Vec<f64> =
                case.plans.iter().map(|(plan, _)| case.plan_ns(plan, &base)).collect();
            let total: f64 = times.iter().zip(&case.plans).map(|(time, (_, n))| time * n).sum();
            let error = case.error_of(total);
            let weight = case.weight / (1.0 + (error / OUTLIER_ERROR).powi(2));
            let slopes: Vec<(usize, f64)> = (0..count)
                .filter_map(|parameter| {
                    let affected = &self.affected[parameter][*index];
                    let change: f64 = affected
                        .iter()
                        .map(|plan| {
                            let (plan, n) = (&case.plans[*plan as usize], *plan as usize);
                            plan.1 * (case.plan_ns(&plan.0, &changed[parameter]) - times[n])
                        })
                        .sum();
                    let moved = case.error_of(total + change);
                    let slope = (moved - error) / STEP;
                    (slope != 0.0).then_some((parameter, slope))
                })
                .collect();
            for &(row, a) in &slopes {
                gradient[row] += weight * a * error;
                for &(column, b) in &slopes {
                    matrix[row][column] += weight * a * b;
                }
            }
        }
        for (index, parameter) in self.parameters.list.iter().enumerate() {
            let strength = PRIOR_WEIGHT / (parameter.spread * parameter.spread);
            matrix[index][index] += strength;
            gradient[index] += strength * (point[index] - parameter.prior.ln());
        }
        (matrix, gradient)
    }
}

/// A prior weighs as much as a case with an error of 10%.
const PRIOR_WEIGHT: f64 = 0.02;

fn moved(point: &[f64], index: usize) -> Vec<f64> {
    let mut moved = point.to_vec();
    moved[index] += STEP;
    moved
}

/// Gaussian elimination with pivoting; `None` if the matrix is singular.
fn solve(mut matrix: Vec<Vec<f64>>, mut right: Vec<f64>) -> Option<Vec<f64>> {
    let count = right.len();
    for column in 0..count {
        let size = |row: &usize| matrix[*row][column].abs();
        let pivot = (column..count).max_by(|a, b| size(a).total_cmp(&size(b)))?;
        if matrix[pivot][column].abs() < 1e-12 {
            return None;
        }
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        for row in column + 1..count {
            let (above, below) = matrix.split_at_mut(row);
            let (pivot, row_of) = (&above[column], &mut below[0]);
            let factor = row_of[column] / pivot[column];
            for (value, pivot) in row_of.iter_mut().zip(pivot).skip(column) {
                *value -= factor * pivot;
            }
            right[row] -= factor * right[column];
        }
    }
    for column in (0..count).rev() {
        let known: f64 =
            (column + 1..count).map(|index| matrix[column][index] * right[index]).sum();
        right[column] = (right[column] - known) / matrix[column][column];
    }
    Some(right)
}
