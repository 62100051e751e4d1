//! Black-box tests of the language server: all ways to end a session, misbehaving clients, and runs
//! of real programs if there is a Python with torch.

mod ending;
mod hostile;
mod panel;
mod process;
mod real;
mod simulated_gpu;
