//! Drives real editors, each with the configuration that its page in `docs/editors` shows, and checks
//! what a person would see. `tests/editors/setup` installs them; RIDGELINE_EDITORS names its folder.
//!
//! An editor that is not there is skipped with the reason, or fails its test where
//! RIDGELINE_EDITORS_REQUIRED is set. Screens are kept as text and as SVG in RIDGELINE_EDITOR_PICTURES
//! (default: `target/editors`), to be looked at.

mod documentation;
mod editor;
mod emacs;
mod helix;
mod installed;
mod journey;
mod mend;
mod neovim;
mod panel;
mod picture;
mod sandbox;
mod terminal;
mod vscode;
