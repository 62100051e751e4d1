//! Neovim, as `docs/editors/neovim.md` configures it.

use crate::editors::documentation::blocks;
use crate::editors::editor::Editor;
use crate::editors::fixes::{FixesFindings, fix_finding};
use crate::editors::installed::Installed;
use crate::editors::journey::travel;
use crate::editors::sandbox::Sandbox;
use crate::editors::terminal::Terminal;

#[test]
fn neovim_stable() {
    travel(&Neovim("neovim-stable"));
}

#[test]
fn neovim_newest() {
    travel(&Neovim("neovim-newest"));
}

#[test]
fn neovim_stable_fixes_a_finding() {
    fix_finding(&Neovim("neovim-stable"));
}

#[test]
fn neovim_newest_fixes_a_finding() {
    fix_finding(&Neovim("neovim-newest"));
}

/// Path in the editors' folder.
struct Neovim(&'static str);

/// Settings that a user may have in addition to those on the page.
const PREFERENCES: &str = "\
vim.o.number = true
vim.o.statusline = '%f %m%= %{v:lua.RidgelineStatus()} %l,%c '
vim.diagnostic.config({ virtual_text = true })
";

impl Editor for Neovim {
    fn name(&self) -> &str {
        self.0
    }

    fn needs(&self) -> Vec<String> {
        vec![format!("{}/nvim", self.0)]
    }

    fn set_up(&self, installed: &Installed, sandbox: &Sandbox) -> Vec<String> {
        let configuration = blocks("neovim.md", "Configuration", "lua").concat();
        sandbox.write("home/.config/nvim/plugin/ridgeline.lua", &configuration);
        sandbox.write("home/.config/nvim/init.lua", PREFERENCES);
        let program = installed.path(&format!("{}/nvim", self.0)).display().to_string();
        vec![program, "-n".to_owned(), "train.py".to_owned()]
    }

    fn save(&self, terminal: &Terminal) {
        typed(terminal, "write");
    }

    fn allow(&self, terminal: &Terminal) {
        terminal.press(&["2", "Enter"]);
    }

    fn go_to(&self, terminal: &Terminal, line: u32) {
        typed(terminal, &format!("normal! {line}G^"));
    }

    fn insert_below(&self, terminal: &Terminal, line: u32, text: &str) {
        typed(terminal, &line.to_string());
        terminal.press(&["o"]);
        terminal.write(text);
        terminal.press(&["Escape"]);
    }

    fn delete(&self, terminal: &Terminal, line: u32) {
        typed(terminal, &format!("{line}delete"));
    }

    fn hover(&self, terminal: &Terminal) {
        terminal.press(&["K"]);
    }

    fn close_hover(&self, terminal: &Terminal) {
        // Moving the cursor closes it.
        terminal.press(&["h"]);
    }

    fn command(&self, terminal: &Terminal, name: &str) {
        typed(terminal, &format!("Ridgeline {name}"));
    }

    fn at(&self, line: u32) -> String {
        format!(" {line},")
    }

    fn quit(&self, terminal: &Terminal) {
        typed(terminal, "qall!");
    }

    fn shows_lenses(&self) -> bool {
        true
    }

    fn refreshes_hints(&self) -> bool {
        true
    }
}

impl FixesFindings for Neovim {
    fn quick_fix(&self, terminal: &Terminal, title: &str) {
        typed(terminal, "lua vim.lsp.buf.code_action()");
        let choice = terminal.wait_for(title);
        terminal.keep("11-fixes", &choice);
        terminal.write(&choice.number_of(title).to_string());
        terminal.press(&["Enter"]);
    }
}

fn typed(terminal: &Terminal, command: &str) {
    terminal.write(&format!(":{command}"));
    terminal.press(&["Enter"]);
}
