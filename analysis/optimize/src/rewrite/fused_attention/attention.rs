//! Reads attention that is written out: from the matrix multiplication of weights and values back
//! over dropout, softmax, masks and scale to that of queries and keys.

use std::collections::BTreeSet;

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::{Call, Module, last_name};
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::super::fixes::layers::layer;
use super::super::program::Program;
use super::super::syntax::{callee, written};
use super::mask::{Fill, Mask};
use super::product::Product;
use super::scale::{Factor, is_number};
use super::softmax::Softmax;
use super::statements::{Change, LastChange, last_change};

/// The maximum number of expressions read for one attention.
const MAX_EXPRESSIONS: u32 = 200;

/// Why attention cannot be replaced: an offset, and what is there.
pub(super) type Obstacle = (usize, &'static str);

/// Attention in its parts.
pub(super) struct Attention<'a> {
    pub scores: Scores<'a>,
    pub values: Node<'a>,
    /// The matrix multiplication of weights and values, which is replaced.
    pub output: Node<'a>,
    /// The argument `dropout_p`.
    pub dropout: Option<String>,
    /// Statements that are not needed any more, in the reverse order of the text.
    pub statements: Vec<Node<'a>>,
    /// The variables that these assign.
    pub names: BTreeSet<String>,
}

/// What the scores are made of.
pub(super) struct Scores<'a> {
    pub queries: Node<'a>,
    pub keys: String,
    /// The node that `keys` was read from.
    pub keys_node: Node<'a>,
    pub factors: Vec<Factor<'a>>,
    pub masks: Vec<Mask<'a>>,
    /// What is added to the scores, and the condition under which it is.
    pub bias: Option<(Node<'a>, Option<Node<'a>>)>,
}

/// Reads one attention.
pub(super) struct Reader<'p, 'a> {
    program: &'p Program<'a>,
    module: usize,
    softmax: &'a Call,
    dropout: Option<String>,
    statements: Vec<Node<'a>>,
    names: BTreeSet<String>,
    expressions: u32,
}

const NOT_A_PRODUCT: &str =
    "computes scores other than a matrix multiplication that is scaled and masked";

impl<'p, 'a> Reader<'p, 'a> {
    /// Reads the attention with this softmax and this product of weights and values. Returns `None`
    /// if the product is another one.
    ///
    /// # Errors
    /// Fails if the fused operator does not compute the same.
    pub(super) fn read(
        program: &'p Program<'a>,
        (module, softmax): (usize, &'a Call),
        (output, statement): (Node<'a>, Node<'a>),
    ) -> Result<Option<Attention<'a>>, Obstacle> {
        let mut reader = Reader {
            program,
            module,
            softmax,
            dropout: None,
            statements: Vec::new(),
            names: BTreeSet::new(),
            expressions: 0,
        };
        let Some(product) = Product::of(program, module, output).filter(|one| !one.is_by_rows)
        else {
            return Ok(None);
        };
        let Some((scores, statement)) = reader.weights(product.left, statement) else {
            return Ok(None);
        };
        let scores = reader.scores(scores, statement)?;
        Ok(Some(Attention {
            scores,
            values: product.right,
            output,
            dropout: reader.dropout,
            statements: reader.statements,
            names: reader.names,
        }))
    }

    fn text(&self) -> &'a Module {
        self.program.module(self.module)
    }

    /// Follows weights back to the input of the softmax, and to the statement that computes it.
    fn weights(&mut self, node: Node<'a>, statement: Node<'a>) -> Option<(Node<'a>, Node<'a>)> {
        self.expressions += 1;
        if self.expressions > MAX_EXPRESSIONS {
            return None;
        }
        let text = self.text();
        match Kind::of(&node) {
            Kind::ParenthesizedExpression => self.weights(node.named_child(0)?, statement),
            Kind::Identifier => {
                let name = written(text, node);
                let last = last_change(text, &name, statement)?;
                let Change::Assigned(value) = last.change else { return None };
                if last.condition.is_some() {
                    return None;
                }
                self.statements.push(last.statement);
                self.names.insert(name);
                self.weights(value, last.statement)
            }
            Kind::Call if node.byte_range() == self.softmax.span => {
                let softmax = Softmax::of(self.program, self.module, self.softmax)?;
                Some((softmax.scores, statement))
            }
            Kind::Call => {
                let inner = self.cast(node).or_else(|| self.dropped_out(node))?;
                self.weights(inner, statement)
            }
            _ => None,
        }
    }

    /// The tensor that a call converts to another type: the fused operator computes the softmax of
    /// 16-bit scores in float32.
    fn cast(&self, call: Node<'a>) -> Option<Node<'a>> {
        let function = call.field(Field::Function)?;
        let method = function.field(Field::Attribute)?;
        let is_cast = matches!(
            self.text().text(&method.byte_range()),
            "to" | "type_as" | "float" | "half" | "bfloat16" | "type"
        );
        function.field(Field::Object).filter(|_| is_cast)
    }

    /// The tensor to which a call applies dropout. Stores the share.
    fn dropped_out(&mut self, call: Node<'a>) -> Option<Node<'a>> {
        let text = self.text();
        let name = callee(text, call);
        let arguments = self.program.arguments(self.module, call)?;
        let input = arguments.positional.first().copied().or(arguments.named("input"))?;
        let share = if self.program.absolute(self.module, &name) == "torch.nn.functional.dropout" {
            let given = arguments.named("p").or(arguments.positional.get(1).copied());
            let given = given.map_or("0.5", |given| text.text(&given.byte_range()));
            let training = arguments.named("training").or(arguments.positional.get(2).copied());
            match training.map(|training| text.text(&training.byte_range())) {
                None | Some("True") => given.to_owned(),
                Some(training) => format!("{given} if {training} else 0.0"),
            }
        } else {
            let mut own = text.assignments.iter().filter(|one| one.target == name).peekable();
            own.peek()?;
            let is_dropout = own.all(|one| {
                let value = text.node(&one.value);
                let layer = value.and_then(|value| layer(self.program, self.module, value));
                layer.as_deref() == Some("Dropout")
            });
            if !is_dropout || !name.starts_with("self.") {
                return None;
            }
            format!("{name}.p if self.training else 0.0")
        };
        self.dropout.is_none().then(|| self.dropout = Some(share))?;
        Some(input)
    }

    /// Follows scores back to the product of queries and keys.
    fn scores(&mut self, node: Node<'a>, statement: Node<'a>) -> Result<Scores<'a>, Obstacle> {
        self.expressions += 1;
        let obstacle = (node.start_byte(), NOT_A_PRODUCT);
        if self.expressions > MAX_EXPRESSIONS {
            return Err(obstacle);
        }
        let text = self.text();
        if let Some(product) = Product::of(self.program, self.module, node) {
            return Ok(Scores {
                queries: product.left,
                keys: product.keys(text),
                keys_node: product.right,
                factors: Vec::new(),
                masks: Vec::new(),
                bias: None,
            });
        }
        match Kind::of(&node) {
            Kind::ParenthesizedExpression => {
                self.scores(node.named_child(0).ok_or(obstacle)?, statement)
            }
            Kind::Identifier => self.scores_of(&written(text, node), statement),
            Kind::BinaryOperator => {
                let sides = node.field(Field::Left).zip(node.field(Field::Right));
                let ((left, right), operator) =
                    sides.zip(node.field(Field::Operator)).ok_or(obstacle)?;
                let (statements, names) = (self.statements.len(), self.names.clone());
                match self.scores(left, statement) {
                    Ok(scores) => self.combined(scores, operator, right),
                    Err(first) if matches!(operator.kind(), "*" | "+") => {
                        self.statements.truncate(statements);
                        self.names = names;
                        let scores = self.scores(right, statement).map_err(|_| first)?;
                        self.combined(scores, operator, left)
                    }
                    Err(first) => Err(first),
                }
            }
            Kind::Call => {
                if let Some(inner) = self.cast(node) {
                    return self.scores(inner, statement);
                }
                let function = node.field(Field::Function).ok_or(obstacle)?;
                let name = last_name(text.text(&function.byte_range())).to_owned();
                let mut inputs =
                    node.field(Field::Arguments).map(named_children).unwrap_or_default();
                let is_function = self.program.absolute(self.module, &callee(text, node))
                    == format!("torch.{name}");
                if !is_function {
                    inputs.insert(0, function.field(Field::Object).ok_or(obstacle)?);
                }
                self.called(&name, &inputs, statement).ok_or(obstacle)?
            }
            _ => Err(obstacle),
        }
    }

    /// The scores that a variable holds before a statement.
    fn scores_of(&mut self, name: &str, statement: Node<'a>) -> Result<Scores<'a>, Obstacle> {
        let obstacle = (statement.start_byte(), NOT_A_PRODUCT);
        self.expressions += 1;
        let last = last_change(self.text(), name, statement).ok_or(obstacle)?;
        if self.expressions > MAX_EXPRESSIONS {
            return Err(obstacle);
        }
        self.statements.push(last.statement);
        self.names.insert(name.to_owned());
        if let Some(condition) = last.condition {
            return self.conditional(name, &last, condition);
        }
        match last.change {
            Change::Assigned(value) => self.scores(value, last.statement),
            Change::Augmented(operator, value) => {
                let scores = self.scores_of(name, last.statement)?;
                self.combined(scores, operator, value)
            }
            Change::InPlace(call) => self.in_place(name, call, last.statement),
        }
    }

    /// `scores.masked_fill_(…)` as a statement.
    fn in_place(
        &mut self,
        name: &str,
        call: Node<'a>,
        statement: Node<'a>,
    ) -> Result<Scores<'a>, Obstacle> {
        let obstacle = (call.start_byte(), NOT_A_PRODUCT);
        let method = last_name(&callee(self.text(), call)).to_owned();
        let arguments = call.field(Field::Arguments).map(named_children).unwrap_or_default();
        let scores = self.scores_of(name, statement)?;
        self.applied(method.trim_end_matches('_'), scores, &arguments).ok_or(obstacle)?
    }

    /// A mask or a bias under `if mask is not None:`.
    fn conditional(
        &mut self,
        name: &str,
        last: &LastChange<'a>,
        condition: Node<'a>,
    ) -> Result<Scores<'a>, Obstacle> {
        let obstacle =
            (last.statement.start_byte(), "changes scores under a condition other than a mask's");
        let inner = last.statement.field(Field::Consequence).ok_or(obstacle)?;
        let before = self.scores_of(name, last.statement)?;
        let (masks, factors, has_bias) =
            (before.masks.len(), before.factors.len(), before.bias.is_some());
        let text = self.text();
        let is_variable = |node: Node<'a>| node.is(Kind::Identifier) && written(text, node) == name;
        let mut scores = match last.change {
            Change::Augmented(operator, value) => self.combined(before, operator, value)?,
            Change::InPlace(call) => {
                let method = last_name(&callee(text, call)).to_owned();
                let arguments =
                    call.field(Field::Arguments).map(named_children).unwrap_or_default();
                let method = method.trim_end_matches('_');
                self.applied(method, before, &arguments).ok_or(obstacle)??
            }
            Change::Assigned(value) => match Kind::of(&value) {
                Kind::BinaryOperator => {
                    let operator = value.field(Field::Operator).ok_or(obstacle)?;
                    let left = value.field(Field::Left).filter(|left| is_variable(*left));
                    let right = value.field(Field::Right).filter(|_| left.is_some());
                    self.combined(before, operator, right.ok_or(obstacle)?)?
                }
                Kind::Call => {
                    let function = value.field(Field::Function).ok_or(obstacle)?;
                    let object = function.field(Field::Object).filter(|one| is_variable(*one));
                    let method = function.field(Field::Attribute).filter(|_| object.is_some());
                    let method = written(text, method.ok_or(obstacle)?);
                    let arguments =
                        value.field(Field::Arguments).map(named_children).unwrap_or_default();
                    self.applied(&method, before, &arguments).ok_or(obstacle)??
                }
                _ => return Err(obstacle),
            },
        };
        // Of the two, exactly one is new.
        let new_mask = scores.masks.len() == masks + 1;
        let new_bias = !has_bias && scores.bias.is_some();
        if scores.factors.len() != factors || new_mask == new_bias {
            return Err((inner.start_byte(), obstacle.1));
        }
        match (&mut scores.bias, scores.masks.last_mut()) {
            (Some((_, bias)), _) if new_bias => *bias = Some(condition),
            (_, Some(mask)) => mask.condition = Some(condition),
            _ => {}
        }
        Ok(scores)
    }

    /// Scores after `scores * value` and similar.
    fn combined(
        &self,
        mut scores: Scores<'a>,
        operator: Node<'a>,
        value: Node<'a>,
    ) -> Result<Scores<'a>, Obstacle> {
        let at = value.start_byte();
        match operator.kind().trim_end_matches('=') {
            "*" | "/" if scores.bias.is_some() => {
                Err((at, "scales the bias of the scores as well"))
            }
            kind @ ("*" | "/") => {
                if !is_number(self.program, self.module, value, 0) {
                    return Err((at, "scales by a value that may be a tensor: use a number"));
                }
                scores.factors.push(Factor { value, is_divisor: kind == "/" });
                Ok(scores)
            }
            "+" if scores.bias.is_none() && scores.masks.is_empty() => {
                scores.bias = Some((value, None));
                Ok(scores)
            }
            _ => Err((at, NOT_A_PRODUCT)),
        }
    }

    /// Scores that are the first input of a function or method.
    fn called(
        &mut self,
        name: &str,
        inputs: &[Node<'a>],
        statement: Node<'a>,
    ) -> Option<Result<Scores<'a>, Obstacle>> {
        let (first, rest) = inputs.split_first()?;
        // `torch.where(condition, one, other)` masks one of the two.
        if name == "where" {
            let [one, other] = rest else { return None };
            let text = self.text();
            let is_fill = |node: &Node<'a>| !matches!(Fill::of(text, *node), Fill::Other);
            let (scores, value, is_kept) = match (is_fill(one), is_fill(other)) {
                (false, true) => (one, other, true),
                (true, false) => (other, one, false),
                _ => return None,
            };
            let scores = self.scores(*scores, statement);
            return Some(scores.and_then(|scores| self.masked(scores, *first, *value, is_kept)));
        }
        let scores = match self.scores(*first, statement) {
            Ok(scores) => scores,
            Err(obstacle) => return Some(Err(obstacle)),
        };
        self.applied(name, scores, rest)
    }

    /// Scores after a method, whose arguments are given.
    fn applied(
        &self,
        method: &str,
        mut scores: Scores<'a>,
        arguments: &[Node<'a>],
    ) -> Option<Result<Scores<'a>, Obstacle>> {
        match (method.trim_end_matches('_'), arguments) {
            ("masked_fill", [place, value]) => {
                let value = match Kind::of(value) {
                    Kind::KeywordArgument => value.field(Field::Value)?,
                    _ => *value,
                };
                Some(self.masked(scores, *place, value, false))
            }
            (name @ ("div" | "mul"), [value]) => {
                let is_scaled =
                    scores.bias.is_none() && is_number(self.program, self.module, *value, 0);
                if !is_scaled {
                    let what = "scales by a value that may be a tensor: use a number";
                    return Some(Err((value.start_byte(), what)));
                }
                scores.factors.push(Factor { value: *value, is_divisor: name == "div" });
                Some(Ok(scores))
            }
            _ => None,
        }
    }

    fn masked(
        &self,
        mut scores: Scores<'a>,
        place: Node<'a>,
        value: Node<'a>,
        is_kept: bool,
    ) -> Result<Scores<'a>, Obstacle> {
        let is_finite = match Fill::of(self.text(), value) {
            Fill::Infinite => false,
            Fill::Finite => true,
            Fill::Other => return Err((value.start_byte(), "masks scores with another value")),
        };
        if scores.bias.is_some() {
            return Err((place.start_byte(), "masks scores that have a bias"));
        }
        scores.masks.push(Mask { place, is_kept, is_finite, condition: None });
        Ok(scores)
    }
}
