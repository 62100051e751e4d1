//! Data-parallel training on several GPUs: the links between them ([`links`]), the cost of summing
//! gradients ([`all_reduce`]), the gradient buckets and when they are ready ([`buckets`]), and the
//! tasks that this adds to a graph ([`exchange`]). Without a recording, there is only
//! [`single_step`]; [`machines`] compares one GPU with several by it.

pub mod all_reduce;
pub mod buckets;
#[cfg(test)]
pub(crate) mod example;
pub mod exchange;
pub mod links;
pub mod machines;
pub mod single_step;
