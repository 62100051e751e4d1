//! Data-parallel training on several GPUs: the links between them ([`links`]), the cost of summing
//! gradients ([`all_reduce`]), the gradient buckets and when they are ready ([`buckets`]), and the
//! tasks that this adds to a graph ([`exchange`]). Without a recording, there is only
//! [`single_step`].

pub mod all_reduce;
pub mod buckets;
#[cfg(test)]
pub(crate) mod example;
pub mod exchange;
pub mod links;
pub mod single_step;
