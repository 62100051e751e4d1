//! The edge: the only place, beside `requests`, where the protocol's types are known.

pub mod backend;
pub mod capabilities;
pub mod client;
pub mod ext;
pub mod from_proto;
pub mod position;
pub mod to_proto;
