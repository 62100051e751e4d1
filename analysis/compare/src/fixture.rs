//! Profiles for tests, written next to the source lines that they describe.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "for tests alone"
)]

use ridgeline_profile::{
    FileFacts, FileId, KernelCost, LineCost, MemoryByKind, ModuleCost, ModuleId, OperatorCost,
    Phase, PhaseTimes, Profile, Roof,
};
use ridgeline_python::fingerprint;

/// A small training script. The cost of a line is after `#=`: milliseconds of data, forward,
/// backward, optimizer; megabytes of activations and weights; `s`, the self-time share; `n`, calls;
/// `L`, the training loop; `M`, a module that the line creates; `R`, a module that it runs.
pub const TRAIN: &str = "\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7)        #= M1
        self.head = nn.Linear(64, 10)          #= M2

    def forward(self, x):
        x = torch.relu(self.conv(x))           #= f20 b30 a80 R1
        return self.head(
            x.mean((2, 3)),                    #= f2 b4 a4
        )                                      #= f1 b3 R2

def train(model, loader, optimizer):
    for x, y in loader:                        #= d8 L
        # One step.
        optimizer.zero_grad()                  #= o0.2
        loss = F.cross_entropy(model(x), y)    #= f25 b40 a90 s0.1 R0
        loss.backward()                        #= b0.01
        optimizer.step()                       #= o20

def main():
    model = Net()                              #= M0
    train(model, loader, optimizer)            #= d8 f25 b40 o20.2 a90 w9 s0 n0

main()                                         #= d8 f25 b40 o20.2 a90 w9 s0 n0
";

/// Returns the text without the marks, and the profile that they describe.
pub fn profile(marked: &str) -> (String, Profile) {
    let mut text = String::new();
    let mut profile = Profile::default();
    let mut lines = Vec::new();
    let names = ["", "conv", "head"];
    for (at, name) in names.iter().enumerate() {
        profile.modules.push(ModuleCost {
            path: (*name).to_owned(),
            type_name: ["Net", "Conv2d", "Linear"][at].to_owned(),
            parent: (at > 0).then_some(ModuleId(0)),
            total_time: PhaseTimes {
                forward: [25e6, 20e6, 3e6][at],
                backward: [40e6, 30e6, 7e6][at],
                optimizer: [20e6, 15e6, 5e6][at],
                ..PhaseTimes::default()
            },
            self_time: PhaseTimes {
                forward: [2e6, 20e6, 3e6][at],
                backward: [3e6, 30e6, 7e6][at],
                optimizer: [0.0, 15e6, 5e6][at],
                ..PhaseTimes::default()
            },
            memory: MemoryByKind {
                weights: [9_000_000, 8_000_000, 1_000_000][at],
                activations: [90_000_000, 80_000_000, 4_000_000][at],
                ..MemoryByKind::default()
            },
            calls: 1.0,
            parameters: [2_250_000, 2_000_000, 250_000][at],
            ..ModuleCost::default()
        });
    }
    for (at, marked_line) in marked.split_inclusive('\n').enumerate() {
        let number = u32::try_from(at).unwrap() + 1;
        let (code, marks) = marked_line.split_once("#=").unwrap_or((marked_line, ""));
        let ending = if marked_line.ends_with("\r\n") { "\r\n" } else { "\n" };
        text.push_str(code.trim_end());
        text.push_str(ending);
        let mut line = LineCost { line: number, calls: 1.0, ..LineCost::default() };
        let mut own = 1.0;
        for mark in marks.split_whitespace() {
            let (kind, value) = mark.split_at(1);
            let value = value.parse::<f64>().unwrap_or(0.0);
            let bytes = (value * 1e6) as u64;
            match kind {
                "d" => line.total_time.data = value * 1e6,
                "f" => line.total_time.forward = value * 1e6,
                "b" => line.total_time.backward = value * 1e6,
                "o" => line.total_time.optimizer = value * 1e6,
                "a" => line.total_memory.activations = bytes,
                "w" => line.total_memory.weights = bytes,
                "s" => own = value,
                "n" => line.calls = value,
                "L" => profile.iteration.loop_line = Some((FileId(0), number)),
                "M" => profile.modules[value as usize].definition.push((FileId(0), number)),
                "R" => line.modules.push(ModuleId(value as u32)),
                other => panic!("unknown mark {other}"),
            }
        }
        for phase in Phase::ALL {
            *line.self_time.get_mut(phase) = line.total_time.get(phase) * own;
        }
        if own == 1.0 {
            line.self_memory = line.total_memory;
        }
        if line.total_time.total() > 0.0 {
            lines.push(line);
        }
    }
    if let Some(line) = lines.iter_mut().find(|line| line.modules.contains(&ModuleId(1))) {
        line.operators.push(OperatorCost {
            name: "aten::convolution".into(),
            phase: Some(Phase::Forward),
            calls: 1.0,
            time_ns: 20e6,
            self_time_ns: 20e6,
            inputs: "[32, 3, 224, 224] float".into(),
            flops: Some(300e9),
            bytes: Some(2e9),
            kernels: vec![KernelCost {
                name: "sm90_xmma_fprop<float*, _x_>".into(),
                calls: 1.0,
                time_ns: 10e6,
                occupancy: Some(0.62),
            }],
        });
    }
    profile.lines.push(lines);
    profile.files.push(FileFacts { path: "train.py".into(), fingerprint: fingerprint(&text) });
    profile.device.name = "NVIDIA H200".into();
    profile.device.kind = "cuda".into();
    profile.device.roof =
        Some(Roof { fp32_flops: Some(60e12), bandwidth: Some(4.8e12), ..Roof::default() });
    profile.torch_version = "2.15.0".into();
    profile.iteration.time_ns = 100e6;
    profile.iteration.timed_ns = vec![99e6, 100e6, 104e6];
    profile.iteration.batch_size = Some(32);
    profile.iteration.phases =
        PhaseTimes { data: 8e6, forward: 25e6, backward: 40e6, optimizer: 20.2e6, other: 6.8e6 };
    profile.memory.peak_bytes = 120_000_000;
    profile.memory.capacity_bytes = Some(23_700_000_000);
    profile.memory.at_peak = MemoryByKind {
        weights: 9_000_000,
        gradients: 9_000_000,
        activations: 90_000_000,
        batch: 12_000_000,
        ..MemoryByKind::default()
    };
    profile.coverage.time = 0.98;
    profile.coverage.memory = 1.0;
    (text, profile)
}
