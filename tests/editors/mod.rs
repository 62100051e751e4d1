//! Drives real editors, each with the configuration from its page in `docs/editors`, and checks
//! what a user would see. `tests/editors/setup` installs them; RIDGELINE_EDITORS names its folder.
//!
//! Tests of a missing editor are skipped with the reason, or fail if RIDGELINE_EDITORS_REQUIRED is
//! set. Screenshots are saved as text and as SVG in RIDGELINE_EDITOR_PICTURES (default:
//! `target/editors`).

mod documentation;
mod editor;
mod emacs;
mod fixes;
mod helix;
mod installed;
mod journey;
mod neovim;
mod other_servers;
mod panel;
mod picture;
mod sandbox;
mod terminal;
mod vscode;
