//! Neovim, as `docs/editors/neovim.md` configures it.

use std::path::Path;

use crate::documentation::blocks;
use crate::installed::Installed;
use crate::sandbox::Sandbox;
use crate::terminal::Terminal;

const PROJECT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/editors/projects/digits");

#[test]
fn neovim_stable() {
    journey("neovim-stable");
}

#[test]
fn neovim_newest() {
    journey("neovim-newest");
}

fn journey(name: &str) {
    let program = format!("{name}/nvim");
    let Some(installed) = Installed::with(&[&program, "tools/tmux"]) else { return };
    let sandbox = Sandbox::with_project(Path::new(PROJECT), &installed.environment);
    let configuration = blocks("neovim.md", "Configuration", "lua").concat();
    sandbox.write("home/.config/nvim/plugin/ridgeline.lua", &configuration);
    sandbox.write(
        "home/.config/nvim/init.lua",
        "vim.o.number = true\nvim.o.statusline = '%f %m%= %{v:lua.RidgelineStatus()} %l,%c '\n",
    );
    let nvim = installed.path(&program).display().to_string();
    let terminal =
        Terminal::start(installed.path("tools/tmux"), &sandbox, name, &[&nvim, "-n", "train.py"]);
    terminal.wait_for("profile");
    terminal.press(&[":", "w", "Enter"]);
    let asked = terminal.wait_for("Run once");
    terminal.keep("1-consent", &asked);
    terminal.press(&["2", "Enter"]);
    let measured = terminal.wait_until("hints", |screen| {
        screen.line("loss.backward()").is_some_and(|line| line.contains('%'))
    });
    terminal.keep("2-measured", &measured);
    terminal.write(":qa!\n");
    terminal.wait_for_end();
    sandbox.assert_everything_ended();
}
