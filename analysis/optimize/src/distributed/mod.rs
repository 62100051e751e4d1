//! Several GPUs that train one model together: what connects them ([`links`]), what summing
//! gradients over them costs ([`all_reduce`]), when which gradients can go ([`buckets`]), and the
//! tasks that this adds to a graph ([`exchange`]). Without a recording there is a [`single_step`] alone.

pub mod all_reduce;
pub mod buckets;
#[cfg(test)]
pub(crate) mod example;
pub mod exchange;
pub mod links;
pub mod single_step;
