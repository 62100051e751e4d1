//! Gradients in bfloat16: a communication hook of `DistributedDataParallel`.

use expect_test::expect;

use super::*;

const COMPRESSION: EditKind = EditKind::GradientCompression;
const WRAPPED: &str = "\
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.distributed.init_process_group()
model = DDP(nn.Linear(4, 4), static_graph=True)
for x in batches:
    model(x).sum().backward()
    optimizer.step()
";

#[test]
fn a_wrapped_model() {
    check(
        COMPRESSION,
        WRAPPED,
        expect![[r#"
         from torch import nn
        +from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
         from torch.nn.parallel import DistributedDataParallel as DDP
        …
         model = DDP(nn.Linear(4, 4), static_graph=True)
        +model.register_comm_hook(None, bf16_compress_hook)
         for x in batches:
    "#]],
    );
}

/// The hook is registered where the model is wrapped, which is not in every run.
#[test]
fn after_the_data_parallel_edit() {
    let plain = PLAIN.replace("LazyLinear(10)", "Linear(8, 10)");
    let parallel = edited(&[("train.py", &plain)], request_for(EditKind::DataParallel));
    check(
        COMPRESSION,
        &parallel["train.py"],
        expect![[r#"
         from torch import nn
        +from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
         from torch.nn.parallel import DistributedDataParallel
        …
             model = DistributedDataParallel(model)
        +    model.register_comm_hook(None, bf16_compress_hook)
         criterion = nn.CrossEntropyLoss()
    "#]],
    );
}

#[test]
fn refusals() {
    let hook = "for x in batches:\n    model.register_comm_hook(None, hook)\n";
    check_refused(
        COMPRESSION,
        &WRAPPED.replace("for x in batches:\n", hook),
        expect!["done: train.py:8 already registers a communication hook"],
    );
    check_refused(
        COMPRESSION,
        PLAIN,
        expect!["no DistributedDataParallel model was found: apply `data-parallel` first"],
    );
    let twice = WRAPPED.replace("for x in", "other = DDP(nn.Linear(4, 4))\nfor x in");
    check_refused(
        COMPRESSION,
        &twice,
        expect!["train.py:7 wraps another model in DistributedDataParallel: edit it by hand"],
    );
    let mixed = WRAPPED.replace("static_graph=True", "mixed_precision=precision");
    check_refused(
        COMPRESSION,
        &mixed,
        expect!["train.py:6 chooses the type of exchanged gradients by `mixed_precision`"],
    );
    let inside = WRAPPED.replace(
        "model = DDP(nn.Linear(4, 4), static_graph=True)",
        "model = keep(DDP(nn.Linear(4, 4)))",
    );
    check_refused(
        COMPRESSION,
        &inside,
        expect![
            "train.py:6 wraps the model inside a larger expression: assign it to a variable first"
        ],
    );
    let joined = WRAPPED.replace("True)\n", "True); other = 1\n");
    check_refused(
        COMPRESSION,
        &joined,
        expect!["train.py:6 has several statements on one line: put each on its own line"],
    );
    let taken = WRAPPED.replace("for x in", "bf16_compress_hook = None\nfor x in");
    check_refused(
        COMPRESSION,
        &taken,
        expect!["train.py:6 needs the name `bf16_compress_hook`, which is used for something else"],
    );
}
