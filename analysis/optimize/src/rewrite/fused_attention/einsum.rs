//! The equation of an `einsum`, in torch (`"bhid,bhjd->bhij"`) and in einops (`"b h i d, b h j d -> b h i j"`).

use ridgeline_python::semantics::gather::named_children;
use ridgeline_python::semantics::module::Module;
use ridgeline_python::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

/// The dimensions of the factors and of the result: one letter each in torch, one word each in
/// einops.
pub struct Equation {
    pub factors: Vec<Vec<String>>,
    pub result: Vec<String>,
}

impl Equation {
    /// Reads the equation of a call.
    pub fn of(text: &Module, call: Node<'_>) -> Option<Equation> {
        let list = call.field(Field::Arguments).map(named_children)?;
        let literal = list.into_iter().find(|one| one.is(Kind::String))?;
        let equation = text.text(&literal.byte_range()).trim_matches(['"', '\'']);
        let (factors, result) = equation.split_once("->")?;
        let labels = |side: &str| -> Vec<String> {
            match side.trim() {
                words if words.contains(' ') => {
                    words.split_whitespace().map(str::to_owned).collect()
                }
                letters => letters.chars().map(String::from).collect(),
            }
        };
        Some(Equation { factors: factors.split(',').map(labels).collect(), result: labels(result) })
    }

    /// Whether each row of the first factor is multiplied by each row of the second, as queries by
    /// keys: `…id,…jd->…ij`.
    pub(super) fn multiplies_rows(&self) -> bool {
        self.is_product(|left, right| left.last() == right.last(), 1)
    }

    /// Whether it is the matrix product of its factors, as weights by values: `…ij,…jd->…id`.
    pub(super) fn is_matrix_product(&self) -> bool {
        self.is_product(|left, right| left.last() == right.get(right.len() - 2), 0)
    }

    /// Whether the factors have the same leading dimensions as the result, and the result's last two
    /// come from the left factor and from the right one, which has `rows` behind it.
    fn is_product(&self, sums: impl Fn(&[String], &[String]) -> bool, rows: usize) -> bool {
        let [left, right] = self.factors.as_slice() else { return false };
        let (Some(batch), Some(right_batch)) =
            (left.len().checked_sub(2), right.len().checked_sub(2))
        else {
            return false;
        };
        let row = left.get(batch);
        let column = right.get(right.len() - 1 - rows);
        batch == right_batch
            && self.result.len() == left.len()
            && left.get(..batch) == right.get(..batch)
            && left.get(..batch) == self.result.get(..batch)
            && sums(left, right)
            && row == self.result.get(batch)
            && column == self.result.get(batch + 1)
            && row != column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn equation(written: &str) -> Equation {
        let text = Module::new("a.py", format!("einsum('{written}', a, b)").into());
        let call = text.node(&text.calls[0].span).expect("a call");
        Equation::of(&text, call).expect("an equation")
    }

    #[test]
    fn rows_by_rows() {
        for one in ["bhid,bhjd->bhij", "b h i d, b h j d -> b h i j", "nqc,nkc->nqk"] {
            assert!(equation(one).multiplies_rows(), "{one}");
            assert!(!equation(one).is_matrix_product(), "{one}");
        }
        for other in ["bihd,bjhd->bhij", "bhid,bjd->bhij", "bhid,bhjd->bhji", "id,jd->", "d,d->d"] {
            assert!(!equation(other).multiplies_rows(), "{other}");
        }
    }

    #[test]
    fn matrix_products() {
        for one in ["bhij,bhjd->bhid", "b h i j, b h j d -> b h i d"] {
            assert!(equation(one).is_matrix_product(), "{one}");
            assert!(!equation(one).multiplies_rows(), "{one}");
        }
        for other in ["bhij,bjhd->bihd", "bhij,hg->bgij", "bhij,bhjd->bhdi"] {
            assert!(!equation(other).is_matrix_product(), "{other}");
        }
    }
}
