//! Emacs with eglot and with lsp-mode, as `docs/editors/emacs.md` configures them.

use crate::editors::documentation::blocks;
use crate::editors::editor::Editor;
use crate::editors::installed::Installed;
use crate::editors::journey::travel;
use crate::editors::sandbox::Sandbox;
use crate::editors::terminal::{Screen, Terminal};

#[test]
fn emacs_eglot() {
    travel(&Emacs { client: "eglot" });
}

#[test]
fn emacs_lsp_mode() {
    travel(&Emacs { client: "lsp-mode" });
}

struct Emacs {
    /// The heading of the configuration on the page.
    client: &'static str,
}

/// Settings that a user may have in addition to those on the page.
const PREFERENCES: &str = "\
(setq inhibit-startup-screen t make-backup-files nil create-lockfiles nil suggest-key-bindings nil)
(setq confirm-kill-processes nil)
(menu-bar-mode -1)
(global-display-line-numbers-mode 1)
";

impl Emacs {
    fn is_eglot(&self) -> bool {
        self.client == "eglot"
    }
}

impl Editor for Emacs {
    fn name(&self) -> &str {
        if self.is_eglot() { "emacs-eglot" } else { "emacs-lsp-mode" }
    }

    fn needs(&self) -> Vec<String> {
        let mut needed = vec!["emacs/emacs".to_owned()];
        if !self.is_eglot() {
            needed.push("lsp-mode/packages".to_owned());
        }
        needed
    }

    fn set_up(&self, installed: &Installed, sandbox: &Sandbox) -> Vec<String> {
        let mut init = PREFERENCES.to_owned();
        if !self.is_eglot() {
            let packages = installed.path("lsp-mode/packages");
            init +=
                &format!("(setq package-directory-list '({packages:?}))\n(package-initialize)\n");
        }
        init += &blocks("emacs.md", self.client, "elisp").concat();
        sandbox.write("home/.config/emacs/init.el", &init);
        let program = installed.path("emacs/emacs").display().to_string();
        vec![program, "--no-window-system".to_owned(), "train.py".to_owned()]
    }

    fn begin(&self, terminal: &Terminal) {
        if !self.is_eglot() {
            terminal.wait_for("Import project root");
            terminal.press(&["i"]);
        }
        terminal.wait_for(if self.is_eglot() { "[eglot:" } else { "LSP[" });
    }

    fn save(&self, terminal: &Terminal) {
        terminal.press(&["C-x", "C-s"]);
    }

    fn allow(&self, terminal: &Terminal) {
        // eglot prefills its first choice.
        terminal.press(&["C-a", "C-k"]);
        terminal.write("Always");
        terminal.press(&["Tab", "Enter"]);
    }

    fn go_to(&self, terminal: &Terminal, line: u32) {
        terminal.press(&["M-g", "g"]);
        terminal.write(&line.to_string());
        terminal.press(&["Enter", "M-m"]);
    }

    fn insert_below(&self, terminal: &Terminal, line: u32, text: &str) {
        self.go_to(terminal, line);
        terminal.press(&["C-e", "Enter"]);
        terminal.write(text);
    }

    fn delete(&self, terminal: &Terminal, line: u32) {
        self.go_to(terminal, line);
        terminal.press(&["C-a", "C-k", "C-k"]);
    }

    fn hover(&self, terminal: &Terminal) {
        let command =
            if self.is_eglot() { "eldoc-doc-buffer" } else { "lsp-describe-thing-at-point" };
        meta_x(terminal, command);
    }

    fn close_hover(&self, terminal: &Terminal) {
        // Its window took lines from the text's window, which scrolled.
        terminal.press(&["C-x", "1", "M-<"]);
    }

    fn show_failure(&self, terminal: &Terminal) {
        // lsp-mode uses the echo area for hovers.
        if !self.is_eglot() {
            meta_x(terminal, "flymake-show-buffer-diagnostics");
        }
    }

    fn close_failure(&self, terminal: &Terminal) {
        if !self.is_eglot() {
            terminal.press(&["C-x", "1", "M-<"]);
        }
    }

    fn command(&self, terminal: &Terminal, name: &str) {
        meta_x(terminal, "ridgeline");
        terminal.write(name);
        terminal.press(&["Enter"]);
    }

    fn at(&self, line: u32) -> String {
        format!(" L{line} ")
    }

    fn quit(&self, terminal: &Terminal) {
        meta_x(terminal, "kill-emacs");
    }

    fn is_running(&self, screen: &Screen) -> bool {
        // lsp-mode's own progress may leave no room for Ridgeline's.
        screen.shows("profiling") || screen.shows("⌛ ")
    }

    fn shows_lenses(&self) -> bool {
        !self.is_eglot()
    }

    fn refreshes_hints(&self) -> bool {
        true
    }
}

fn meta_x(terminal: &Terminal, command: &str) {
    terminal.press(&["M-x"]);
    terminal.write(command);
    terminal.press(&["Enter"]);
}
