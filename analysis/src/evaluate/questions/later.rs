//! Questions of the table that nothing here answers yet. They are named, so that nobody takes their
//! absence for an answer.

use super::{Bar, Cases, Question};
use crate::evaluate::ground_truth::GroundTruth;
use crate::predict::device_table::DeviceTable;

/// A question without an answer.
pub struct Later {
    id: &'static str,
    title: &'static str,
    bar: Bar,
    why: &'static str,
}

/// All of them.
pub const ALL: [Later; 3] = [
    Later {
        id: "mixed_precision",
        title: "What mixed precision brings: FP32 to FP16, training",
        bar: Bar { mean: 0.10, median: None, aim: 0.06 },
        why: "it needs what-ifs on the operators of a step, and lists of the lambda models",
    },
    Later {
        id: "torch_compile",
        title: "What torch.compile brings: RTX 4090, inference",
        bar: Bar { mean: 0.13, median: None, aim: 0.09 },
        why: "it needs a model of which operators the compiler fuses",
    },
    Later {
        id: "channels_last",
        title: "What channels_last brings: RTX 3090, training",
        bar: Bar { mean: 0.15, median: None, aim: 0.10 },
        why: "it needs what-ifs on the layout of a measured step",
    },
];

impl Question for Later {
    fn id(&self) -> &'static str {
        self.id
    }

    fn title(&self) -> &'static str {
        self.title
    }

    fn bar(&self) -> Bar {
        self.bar
    }

    fn cases(&self, _truth: &GroundTruth, _devices: &'static DeviceTable) -> Cases {
        Cases::default()
    }

    fn not_yet(&self) -> Option<&'static str> {
        Some(self.why)
    }
}
