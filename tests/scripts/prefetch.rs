//! Trains a program before and after the edit that copies the next batch while the GPU computes.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use ridgeline_analysis::optimize::rewrite::{EditKind, Request, rewrite};
use ridgeline_analysis::python::semantics::Entry;

use super::machine_lock::shared;
use super::simulated::Device;
use crate::sandbox::{Sandbox, python_with_torch, run_to_end};

/// Two epochs of ten iterations. The dataset and the model draw random numbers from the same generator.
const SCRIPT: &str = "\
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, at):
        return torch.full((256,), at / 40) + torch.randn(256), torch.tensor(at % 2)


device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
torch.manual_seed(0)
loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(256, 64), nn.Dropout(0.1), nn.Linear(64, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for step, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(epoch, step, tuple(x.shape), x.device.type, y.device.type, loss.item())
";

/// Counts the streams on which batches are copied, and those on which kernels run.
const TRACED: &str = "\
import runpy, torch
from torch.profiler import ProfilerActivity, profile
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
    runpy.run_path('train.py')
profiled.export_chrome_trace('trace.json')
import json
events = json.load(open('trace.json'))['traceEvents']
stream = lambda event: event['args']['stream']
copies = [stream(e) for e in events if e.get('cat') == 'gpu_memcpy' and 'HtoD' in e['name'] and e['args']['bytes'] > 16]
kernels = {stream(e) for e in events if e.get('cat') == 'kernel'}
pinned = sum('Pinned' in e['name'] for e in events if e.get('cat') == 'gpu_memcpy' and 'HtoD' in e['name'])
beside = sum(one not in kernels for one in copies)
print('copies beside the kernels', beside, 'pinned', pinned)
";

fn edited() -> String {
    let texts = HashMap::from([("train.py".to_owned(), Arc::<str>::from(SCRIPT))]);
    let entry = Entry { path: "train.py".to_owned(), ..Entry::default() };
    let request = Request { kind: EditKind::Prefetch, lines: &[], count: None };
    rewrite(&texts, &entry, &request).expect("an edit").files[0].applied(SCRIPT)
}

fn printed(python: &Path, text: &str) -> String {
    let sandbox = Sandbox::new();
    sandbox.write("train.py", text);
    let mut command = Command::new(python);
    command.arg("train.py").current_dir(sandbox.project()).env("CUDA_VISIBLE_DEVICES", "");
    run_to_end(&mut command).exits_with(0).stdout
}

/// On a CPU, nothing is read ahead, so that all random numbers are the same.
#[test]
fn a_cpu_prints_the_same_losses() {
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    let before = printed(python, SCRIPT);
    assert_eq!(before.lines().count(), 20, "{before}");
    assert_eq!(printed(python, &edited()), before);
}

/// The simulated device computes nothing, so only the order and the place of the copies are compared.
#[test]
fn a_simulated_gpu_copies_on_another_stream() {
    let Some(device) = Device::new("prefetch") else { return };
    let Some(python) = python_with_torch() else { return };
    let _lock = shared();
    let run = |text: &str| {
        let sandbox = Sandbox::new();
        sandbox.write("train.py", text);
        let mut command = device.command(&python.to_string_lossy());
        command.args(["-c", TRACED]).current_dir(sandbox.project());
        run_to_end(&mut command).exits_with(0).stdout
    };
    let (before, after) = (run(SCRIPT), run(&edited()));
    let batches = |printed: &str| {
        let lines = printed.lines().filter(|line| line.contains("cuda"));
        lines.map(|line| line.rsplit_once(' ').map_or("", |one| one.0).to_owned()).collect()
    };
    let (one, other): (Vec<String>, Vec<String>) = (batches(&before), batches(&after));
    assert_eq!(one.len(), 20, "{before}");
    assert_eq!(one, other);
    assert!(before.contains("copies beside the kernels 0 pinned 0"), "{before}");
    assert!(after.contains("copies beside the kernels 40 pinned 40"), "{after}");
}
