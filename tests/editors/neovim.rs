//! Neovim, as `docs/editors/neovim.md` configures it.

use crate::editors::documentation::blocks;
use crate::editors::editor::Editor;
use crate::editors::fixes::{FixesFindings, fix_finding};
use crate::editors::installed::Installed;
use crate::editors::journey::travel;
use crate::editors::other_servers::share_buffer;
use crate::editors::sandbox::Sandbox;
use crate::editors::terminal::Terminal;

#[test]
fn neovim_stable() {
    travel(&Neovim::alone("neovim-stable"));
}

#[test]
fn neovim_newest() {
    travel(&Neovim::alone("neovim-newest"));
}

#[test]
fn neovim_stable_fixes_a_finding() {
    fix_finding(&Neovim::alone("neovim-stable"));
}

#[test]
fn neovim_newest_fixes_a_finding() {
    fix_finding(&Neovim::alone("neovim-newest"));
}

#[test]
fn neovim_stable_with_other_servers() {
    share_buffer(&Neovim::with_other_servers("neovim-stable"));
}

#[test]
fn neovim_newest_with_other_servers() {
    share_buffer(&Neovim::with_other_servers("neovim-newest"));
}

struct Neovim {
    /// Path in the editors' folder.
    folder: &'static str,
    /// Whether basedpyright and ruff run too.
    has_other_servers: bool,
}

impl Neovim {
    fn alone(folder: &'static str) -> Neovim {
        Neovim { folder, has_other_servers: false }
    }

    fn with_other_servers(folder: &'static str) -> Neovim {
        Neovim { folder, has_other_servers: true }
    }
}

const SERVERS: [&str; 2] = ["servers/basedpyright-langserver", "servers/ruff"];

/// Starts the servers of [`SERVERS`], and one within Neovim that has no hints and says so before any other server can
/// answer. The type checker does not find torch, which takes less time.
const OTHER_SERVERS: &str = r#"
local function answer_at_once()
  local server = {}
  function server.request(method, _, callback)
    callback(nil, method == "initialize" and { capabilities = { inlayHintProvider = true } } or {})
    return true, 1
  end
  function server.notify() return true end
  function server.is_closing() return false end
  function server.terminate() end
  return server
end

vim.api.nvim_create_autocmd("FileType", {
  pattern = "python",
  callback = function(event)
    local root = vim.fs.dirname(vim.api.nvim_buf_get_name(event.buf))
    vim.lsp.start({
      name = "basedpyright",
      cmd = { "BASEDPYRIGHT", "--stdio" },
      root_dir = root,
      settings = { basedpyright = { analysis = { typeCheckingMode = "basic" } } },
    })
    vim.lsp.start({ name = "fastest", cmd = answer_at_once, root_dir = root })
    vim.lsp.start({ name = "ruff", cmd = { "RUFF", "server" }, root_dir = root })
  end,
})
"#;

/// Settings that a user may have in addition to those on the page.
const PREFERENCES: &str = "\
vim.o.number = true
vim.o.statusline = '%f %m%= %{v:lua.RidgelineStatus()} %l,%c '
vim.diagnostic.config({ virtual_text = true })
";

impl Editor for Neovim {
    fn name(&self) -> &str {
        self.folder
    }

    fn needs(&self) -> Vec<String> {
        let servers = SERVERS.iter().filter(|_| self.has_other_servers);
        let program = format!("{}/nvim", self.folder);
        servers.map(|server| (*server).to_owned()).chain([program]).collect()
    }

    fn set_up(&self, installed: &Installed, sandbox: &Sandbox) -> Vec<String> {
        let configuration = blocks("neovim.md", "Configuration", "lua").concat();
        sandbox.write("home/.config/nvim/plugin/ridgeline.lua", &configuration);
        sandbox.write("home/.config/nvim/init.lua", PREFERENCES);
        if self.has_other_servers {
            let [basedpyright, ruff] =
                SERVERS.map(|server| installed.path(server).display().to_string());
            let servers = OTHER_SERVERS.replace("BASEDPYRIGHT", &basedpyright);
            let servers = servers.replace("RUFF", &ruff);
            sandbox.write("home/.config/nvim/plugin/other_servers.lua", &servers);
        }
        let program = installed.path(&format!("{}/nvim", self.folder)).display().to_string();
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
        if self.has_other_servers {
            // In 0.10, `K` shows the hover of one server.
            typed(terminal, "Ridgeline hover");
        } else {
            terminal.press(&["K"]);
        }
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
    fn quick_fix_among(&self, terminal: &Terminal, title: &str, other: &str) {
        typed(terminal, "lua vim.lsp.buf.code_action()");
        let choice =
            terminal.wait_until("the actions", |screen| screen.shows(title) && screen.shows(other));
        terminal.keep("11-fixes", &choice);
        terminal.write(&choice.number_of(title).to_string());
        terminal.press(&["Enter"]);
    }
}

fn typed(terminal: &Terminal, command: &str) {
    terminal.write(&format!(":{command}"));
    terminal.press(&["Enter"]);
}
