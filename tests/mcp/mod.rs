//! `ridgeline mcp`: consent, both generations of the protocol, hostile input, and the loop of an agent that takes
//! planted projects from faulty to clean with the tools only, driven by the Python SDK's client.

mod client;
mod consent;
mod hostile;
mod sdk;
