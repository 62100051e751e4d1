//! Finds how to run a program on the CPU if it uses a GPU by default: an option that its code
//! declares.

use crate::syntax::kind::{Field, Kind, TypedNode as _};
use tree_sitter::Node;

use super::declared_options::{Declaration, advance, declaration, string};
use crate::syntax::index::SourceIndex;

/// The depth of a top-level assignment in the tree: module, statement, assignment.
const TOP_LEVEL_DEPTH: u32 = 2;

/// Returns the arguments that make a program use the CPU, with the line that declares the option.
/// Returns `None` if the program does not use a GPU by default, or has no such option.
///
/// Recognizes `add_argument("--device", default="cuda")`, `add_argument("--cuda",
/// action="store_false")`, `add_argument("--use_cpu", action="store_true")`, and the settings of
/// programs that any command-line argument overrides (`configurator.py` of nanoGPT).
pub fn cpu_option(index: &SourceIndex) -> Option<(Vec<String>, u32)> {
    let tree = index.tree()?;
    let text = index.text();
    let overrides = text.contains("configurator.py");
    let checks = text.contains("cuda.is_available");
    if !overrides && !text.contains("add_argument") {
        return None;
    }
    // The cursor walks without recursion: the nesting depth is unlimited.
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        let found = match Kind::of(&node) {
            Kind::Call => declared_option(node, text, checks),
            Kind::Assignment if overrides && cursor.depth() == TOP_LEVEL_DEPTH => {
                setting(node, text)
            }
            _ => None,
        };
        if let Some(arguments) = found {
            return Some((arguments, node.start_position().row as u32 + 1));
        }
        if !advance(&mut cursor) {
            return None;
        }
    }
}

/// Returns the arguments for an option that a call of `add_argument` declares. A program that
/// `checks` whether there is a GPU needs none to turn it off.
fn declared_option(call: Node<'_>, text: &str, checks: bool) -> Option<Vec<String>> {
    let Declaration { option, default, action } = declaration(call, text)?;
    match option.trim_start_matches('-') {
        "device" | "accelerator" if default.is_some_and(is_gpu) => {
            Some(vec![option.to_owned(), "cpu".to_owned()])
        }
        "cuda" | "gpu" | "use_cuda" | "use-cuda" | "use_gpu" | "use-gpu" | "no_cuda" | "no_gpu"
        | "no_use_gpu"
            if action == Some("store_false") =>
        {
            Some(vec![option.to_owned()])
        }
        "cpu" | "use_cpu" | "use-cpu" | "cpu_only" | "cpu-only" | "no_cuda" | "no-cuda"
        | "no_gpu" | "no-gpu" | "disable_cuda" | "disable-cuda"
            if action == Some("store_true") && !checks =>
        {
            Some(vec![option.to_owned()])
        }
        _ => None,
    }
}

/// Returns the argument for `device = 'cuda'` in a program whose settings the command line
/// overrides.
fn setting(assignment: Node<'_>, text: &str) -> Option<Vec<String>> {
    let name = text.get(assignment.field(Field::Left)?.byte_range())?;
    let value = string(assignment.field(Field::Right)?, text)?;
    (name == "device" && is_gpu(value)).then(|| vec!["--device=cpu".to_owned()])
}

fn is_gpu(value: &str) -> bool {
    value == "cuda" || value == "gpu" || value.starts_with("cuda:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let found = cpu_option(&SourceIndex::new(text));
        let shown = found.map(|(words, line)| format!("{line}: {}", words.join(" ")));
        assert_eq!(shown.unwrap_or_default(), expected);
    }

    #[test]
    fn options_of_argparse() {
        check(
            "p.add_argument('--lr', default=0.1)\np.add_argument('-d', '--device', type=str, default='cuda')\n",
            "2: --device cpu",
        );
        check("p.add_argument('--device', default='cuda:0', help='x')\n", "1: --device cpu");
        check("p.add_argument('--cuda', action='store_false', help='x')\n", "1: --cuda");
        check("group.add_argument('--use-gpu', action='store_false')\n", "1: --use-gpu");
        let turned_off = "p.add_argument('--use_cpu', action='store_true')\n";
        check(&format!("{turned_off}net.cuda()\n"), "1: --use_cpu");
        check(&format!("{turned_off}if torch.cuda.is_available(): net.cuda()\n"), "");
    }

    #[test]
    fn programs_that_do_not_ask_for_a_gpu_by_default() {
        check("p.add_argument('--cuda', action='store_true')\n", "");
        check("p.add_argument('--device', default='cpu')\n", "");
        check(
            "p.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')\n",
            "",
        );
        check(
            "p.add_argument('--device', default=None)\np.add_argument(*names, default='cuda')\n",
            "",
        );
        check("device = 'cuda'\n", "");
    }

    #[test]
    fn settings_that_the_command_line_overrides() {
        let runs = "exec(open('configurator.py').read())\n";
        check(&format!("device = 'cuda' # or cpu\n{runs}"), "1: --device=cpu");
        check(&format!("def f():\n    device = 'cuda'\n{runs}"), "");
        check(&format!("device = f'cuda'\ndevice = name\n{runs}"), "1: --device=cpu");
    }

    #[test]
    fn nested_20_000_deep() {
        let (open, close) = ("f(".repeat(20_000), ")".repeat(20_000));
        check(&format!("{open}p.add_argument('--cuda', action='store_false'){close}"), "1: --cuda");
    }
}
