//! The cost of the expressions within a line: `self.conv(x)` in `y = self.act(self.conv(x))`.

use super::PhaseTimes;

/// The maximum number of expressions stored per line, the most expensive ones.
pub const EXPRESSIONS_PER_LINE: usize = 32;

/// Where an expression is in the text that ran. Ranges of nested expressions contain each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExpressionRange {
    /// First line, counted from 1.
    pub line: u32,
    /// UTF-8 bytes after the indentation of the first line.
    pub column: u32,
    /// Last line, counted from 1.
    pub end_line: u32,
    /// UTF-8 bytes after the indentation of the last line, exclusive.
    pub end_column: u32,
}

/// The cost of an expression that runs other code: a call, an operator such as `@`, a subscript, a
/// step of a `for`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpressionCost {
    /// Where it is.
    pub range: ExpressionRange,
    /// Time of the expression and everything it calls, without its operands: the arguments of a
    /// call are expressions of their own. So the times of a line's expressions add up to at most
    /// `total_time` of the line.
    pub total_time: PhaseTimes,
    /// Evaluations per iteration.
    pub calls: f64,
}
