//! Edits of layers: biases that a batch norm cancels.

use expect_test::{Expect, expect};

use super::*;

mod attention_weights;
mod in_place;

const BIAS: EditKind = EditKind::WithoutBias;
const IN_PLACE: EditKind = EditKind::InPlaceActivation;

const HEAD: &str = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n";

/// Returns the changed lines of a script, joined, or the reason of the refusal.
fn result_of(kind: EditKind, script: &str) -> String {
    let (texts, entry) = project(&[("train.py", script)]);
    match rewrite(&texts, &entry, &request_for(kind)) {
        Err(refusal) => format!("refused: {refusal}\n"),
        Ok(_) => {
            let after = edited(&[("train.py", script)], request_for(kind));
            let shown = changed_lines(script, &after["train.py"]);
            let new = shown.lines().filter_map(|line| line.strip_prefix('+'));
            new.map(|line| format!("{}\n", line.trim())).collect()
        }
    }
}

/// Checks the result of each script, which follows the imports.
#[track_caller]
fn check_each(kind: EditKind, scripts: &[&str], expected: Expect) {
    let all = scripts.iter().map(|script| result_of(kind, &format!("{HEAD}{script}\n")));
    expected.assert_eq(&all.collect::<String>());
}

/// Returns a class with layers and a `forward`.
fn class(layers: &str, forward: &str) -> String {
    let indented =
        |text: &str| -> String { text.lines().map(|line| format!("        {line}\n")).collect() };
    format!(
        "{HEAD}class Net(nn.Module):\n    def __init__(self, n):\n        super().__init__()\n{}\n    \
         def forward(self, x):\n{}\n\nmodel = Net(4)\n",
        indented(layers),
        indented(forward)
    )
}

#[test]
fn redundant_biases_are_removed() {
    check_each(
        BIAS,
        &[
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))",
            "m = nn.Sequential(nn.Linear(8, n * 4, True), nn.BatchNorm1d(n*4))",
            "m = nn.Sequential(nn.Linear(in_features=8, out_features=4), nn.BatchNorm1d(num_features=4))",
            "m = nn.Sequential(nn.Conv1d(8, 4, 3), nn.BatchNorm1d(4))",
            "m = nn.Sequential(nn.Conv3d(8, 4, 3, bias=True), nn.BatchNorm3d(4))",
            "m = nn.Sequential(nn.Conv2d(8, 4, 3, 1, 1, 1, 1, True), nn.SyncBatchNorm(4))",
            "m = nn.Sequential(nn.ConvTranspose2d(8, 4, 3, stride=2), nn.BatchNorm2d(4))",
            "m = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d())",
            "m = nn.Sequential(torch.nn.Conv2d(8, 4, (3, 3)), torch.nn.BatchNorm2d(4))",
        ],
        expect![[r#"
            m = nn.Sequential(nn.Linear(8, 4, bias=False), nn.BatchNorm1d(4))
            m = nn.Sequential(nn.Linear(8, n * 4, False), nn.BatchNorm1d(n*4))
            m = nn.Sequential(nn.Linear(
            in_features=8,
            out_features=4,
            bias=False,
            ), nn.BatchNorm1d(num_features=4))
            m = nn.Sequential(nn.Conv1d(8, 4, 3, bias=False), nn.BatchNorm1d(4))
            m = nn.Sequential(nn.Conv3d(8, 4, 3, bias=False), nn.BatchNorm3d(4))
            m = nn.Sequential(nn.Conv2d(8, 4, 3, 1, 1, 1, 1, False), nn.SyncBatchNorm(4))
            m = nn.Sequential(nn.ConvTranspose2d(8, 4, 3, stride=2, bias=False), nn.BatchNorm2d(4))
            m = nn.Sequential(nn.LazyConv2d(4, 3, bias=False), nn.LazyBatchNorm2d())
            m = nn.Sequential(torch.nn.Conv2d(8, 4, (3, 3), bias=False), torch.nn.BatchNorm2d(4))
        "#]],
    );
}

#[test]
fn needed_biases_stay() {
    check_each(
        BIAS,
        &[
            // Another dimension is normalized.
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(16))",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm2d(4))",
            "m = nn.Sequential(nn.Linear(8, 4), nn.LazyBatchNorm1d())",
            "m = nn.Sequential(nn.Conv1d(8, 4, 3), nn.BatchNorm1d(16))",
            // Something is in between, or not visible.
            "m = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.BatchNorm1d(4))",
            "m = nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4))",
            "m = nn.Sequential(layer(8, 4), nn.BatchNorm1d(4))",
            "m = nn.Sequential(nn.Conv2d(*sizes), nn.BatchNorm2d(4))",
            "m = nn.Sequential(nn.Conv2d(8, 4, 3, **options), nn.BatchNorm2d(4))",
            "m = nn.Sequential(nn.Conv2d(8, 4, 3, bias=bias), nn.BatchNorm2d(4))",
            "m = nn.ModuleList([nn.Linear(8, 4), nn.BatchNorm1d(4)])",
            "m = nn.Sequential(nn.Linear(8, 4, False), nn.BatchNorm1d(4))",
            // Single layers are accessed.
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\ny = m[0](x)",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nhead = m[:1]",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nfor one in m:\n    x = one(x)",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nhead = list(m.children())[0]",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nm[0].register_forward_hook(show)",
            // A norm that does not subtract the mean of the batch.
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nfor one in m.modules():\n    one.eval()",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nm.norm.eval()\nm(x)\nm.train()",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nm.eval()\nfor x in data:\n    m(x).sum().backward()",
            "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\nm[1] = nn.Identity()",
        ],
        expect![[r#"
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: train.py:5 passes starred arguments to the layer, which may set its bias
            refused: train.py:5 passes starred arguments to the layer, which may set its bias
            refused: train.py:5 takes bias from `bias`: set it there
            refused: no layer here is followed only by batch norm
            refused: train.py:5 already has no bias
            refused: train.py:6 accesses single layers of a Sequential, possibly the output of one before its batch norm
            refused: train.py:6 accesses single layers of a Sequential, possibly the output of one before its batch norm
            refused: train.py:6 accesses single layers of a Sequential, possibly the output of one before its batch norm
            refused: train.py:6 accesses single layers of a Sequential, possibly the output of one before its batch norm
            refused: train.py:6 accesses single layers of a Sequential, possibly the output of one before its batch norm
            refused: train.py:7 puts part of the model that may be training into evaluation mode, where batch norm keeps the bias
            refused: train.py:6 puts part of the model that may be training into evaluation mode, where batch norm keeps the bias
            refused: train.py:6 puts part of the model that may be training into evaluation mode, where batch norm keeps the bias
            refused: train.py:6 accesses single layers of a Sequential, possibly the output of one before its batch norm
        "#]],
    );
}

#[test]
fn a_model_that_is_reset_before_training_counts_as_training() {
    let model = "m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\n";
    let told = |rest: &str| result_of(BIAS, &format!("{HEAD}{model}{rest}\n"));
    let step = "    m(x).sum().backward()";
    for fine in [
        format!("for x in data:\n{step}\nm.eval()\nm(x)"),
        format!("for e in range(3):\n  m.train()\n  for x in data:\n{step}\n  m.eval()\n  m(x)"),
        "def train(net):\n    net.train()\n    net(x).sum().backward()\n\
         for e in range(3):\n    train(m)\n    m.eval()"
            .to_owned(),
        format!("def test(net):\n    net.eval()\n\nfor x in data:\n{step}\ntest(m)"),
        format!(
            "import torchvision\nvgg = torchvision.models.vgg16()\nvgg.eval()\nfor x in data:\n{step}"
        ),
    ] {
        assert!(told(&fine).contains("bias=False"), "{fine}: {}", told(&fine));
    }
    for left in [
        format!("m.eval()\nfor x in data:\n    head.train()\n{step}"),
        format!("for x in data:\n{step}\n    m.eval()"),
        format!("def freeze(net):\n    net.eval()\n\nfreeze(m)\nfor x in data:\n{step}"),
        "def step(x):\n    m(x).sum().backward()\n\nm.eval()\nfor x in data:\n    step(x)"
            .to_owned(),
    ] {
        assert!(told(&left).contains("refused"), "{left}: {}", told(&left));
    }
}

#[test]
fn norms_replaced_or_skipped_by_a_subclass_do_not_cancel_a_bias() {
    let text = |rest: &str| {
        let net = class(
            "self.fc = nn.Linear(8, n)\nself.bn = nn.BatchNorm1d(n)",
            "return self.bn(self.fc(x))",
        );
        format!("{net}{rest}\n")
    };
    assert!(result_of(BIAS, &text("model.head = nn.Identity()")).contains("bias=False"));
    for rest in [
        "model.bn = nn.Identity()",
        "setattr(model, 'bn', nn.Identity())",
        "class Plain(Net):\n    def forward(self, x):\n        return self.fc(x)",
        "class Plain(Net):\n    def __init__(self):\n        super().__init__(4)\n        self.bn = nn.Identity()",
    ] {
        assert!(result_of(BIAS, &text(rest)).contains("refused"), "{rest}");
    }
    let other = "class Other(nn.Module):\n    def forward(self, x):\n        return self.fc(x)";
    assert!(result_of(BIAS, &text(other)).contains("bias=False"));
}

#[test]
fn biases_in_use_stay() {
    let with = |use_of: &str| {
        format!(
            "m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))\n\
             for one in m.modules():\n{}",
            use_of.lines().map(|line| format!("    {line}\n")).collect::<String>()
        )
    };
    let scripts = [
        "nn.init.zeros_(one.bias)",
        "if isinstance(one, nn.Conv2d):\n    nn.init.zeros_(one.bias)",
        "if isinstance(one, (nn.Conv2d, nn.Linear)):\n    one.bias.data.zero_()",
        "if hasattr(one, 'bias'):\n    nn.init.zeros_(one.bias)",
        "if one.__class__.__name__.find('Conv') != -1:\n    one.bias.data.fill_(0)",
        "if isinstance(one, nn.Conv2d):\n    pass\nelse:\n    nn.init.zeros_(one.bias)",
        // These check for a bias, or concern other layers.
        "if isinstance(one, nn.Conv2d) and one.bias is not None:\n    nn.init.zeros_(one.bias)",
        "if isinstance(one, nn.Conv2d):\n    if one.bias is not None:\n        one.bias.data.zero_()",
        "if getattr(one, 'bias', None) is not None:\n    nn.init.zeros_(one.bias)",
        "if isinstance(one, nn.Linear):\n    nn.init.zeros_(one.bias)",
        "if isinstance(one, nn.Conv2d):\n    pass\nelif isinstance(one, nn.BatchNorm2d):\n    nn.init.zeros_(one.bias)",
        "if one.__class__.__name__.find('BatchNorm') != -1:\n    one.bias.data.fill_(0)",
    ];
    let scripts: Vec<String> = scripts.iter().map(|one| with(one)).collect();
    let scripts: Vec<&str> = scripts.iter().map(String::as_str).collect();
    check_each(
        BIAS,
        &scripts,
        expect![[r#"
        refused: train.py:7 uses a bias, possibly the one that would be removed
        refused: train.py:8 uses a bias, possibly the one that would be removed
        refused: train.py:8 uses a bias, possibly the one that would be removed
        refused: train.py:8 uses a bias, possibly the one that would be removed
        refused: train.py:8 uses a bias, possibly the one that would be removed
        refused: train.py:10 uses a bias, possibly the one that would be removed
        m = nn.Sequential(nn.Conv2d(
        3,
        8,
        3,
        bias=False,
        ), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
        m = nn.Sequential(nn.Conv2d(
        3,
        8,
        3,
        bias=False,
        ), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
        m = nn.Sequential(nn.Conv2d(
        3,
        8,
        3,
        bias=False,
        ), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
        m = nn.Sequential(nn.Conv2d(
        3,
        8,
        3,
        bias=False,
        ), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
        m = nn.Sequential(nn.Conv2d(
        3,
        8,
        3,
        bias=False,
        ), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
        m = nn.Sequential(nn.Conv2d(
        3,
        8,
        3,
        bias=False,
        ), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8, 2))
    "#]],
    );
}

#[test]
fn biases_of_layers_in_a_list() {
    check_each(
        BIAS,
        &[
            "layers = [nn.Linear(8, 4), nn.BatchNorm1d(4)]\nlayers += [nn.ReLU()]\nm = nn.Sequential(*layers)",
            "layers = []\nfor i in range(3):\n    layers.append(nn.Linear(8, 8))\n    # normed\n    layers.append(nn.BatchNorm1d(8))\n    layers.append(nn.ReLU())\nm = nn.Sequential(*layers)",
            "layers: list = []\nfor a in sizes:\n    linear = nn.Linear(a, 8)\n    layers += [linear, nn.BatchNorm1d(8)]\nm = nn.Sequential(*layers, nn.Linear(8, 2))",
            "m = nn.Sequential(OrderedDict([('one', nn.Linear(8, 4)), ('norm', nn.BatchNorm1d(4))]))",
            "m = nn.Sequential(OrderedDict({'one': nn.Linear(8, 4), 'norm': nn.BatchNorm1d(4)}))",
            "class Block(nn.Sequential):\n    def __init__(self, a):\n        super().__init__(nn.Linear(a, 4), nn.BatchNorm1d(4))\nm = Block(8)",
            // The norm is not always there, or something else may come between.
            "layers = [nn.Linear(8, 4)]\nif norm:\n    layers.append(nn.BatchNorm1d(4))\nm = nn.Sequential(*layers)",
            "layers = [nn.Linear(8, 4), nn.BatchNorm1d(4)]\nlayers.insert(1, nn.ReLU())\nm = nn.Sequential(*layers)",
            "layers = [nn.Linear(8, 4), nn.BatchNorm1d(4)]\nm = nn.Sequential(*layers)\nothers = nn.ModuleList(layers)",
            "layers = []\nfor i in range(3):\n    layers.append(nn.Linear(8, 8))\n    if i == 2:\n        break\n    layers.append(nn.BatchNorm1d(8))\nm = nn.Sequential(*layers)",
            "linear = nn.Linear(8, 8)\nlayers = [linear, nn.BatchNorm1d(8), linear]\nm = nn.Sequential(*layers)",
            "class Block(nn.Sequential):\n    def __init__(self, a):\n        super().__init__(nn.Linear(a, 4), nn.BatchNorm1d(4))\n    def forward(self, x):\n        return self[0](x)\nm = Block(8)",
        ],
        expect![[r#"
            layers = [nn.Linear(8, 4, bias=False), nn.BatchNorm1d(4)]
            layers.append(nn.Linear(8, 8, bias=False))
            linear = nn.Linear(a, 8, bias=False)
            m = nn.Sequential(OrderedDict([('one', nn.Linear(
            8,
            4,
            bias=False,
            )), ('norm', nn.BatchNorm1d(4))]))
            m = nn.Sequential(OrderedDict({'one': nn.Linear(
            8,
            4,
            bias=False,
            ), 'norm': nn.BatchNorm1d(4)}))
            super().__init__(nn.Linear(a, 4, bias=False), nn.BatchNorm1d(4))
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
            refused: no layer here is followed only by batch norm
        "#]],
    );
}

#[test]
fn biases_of_layers_called_by_a_method() {
    let layers = "self.linear = nn.Linear(n, 4)\nself.norm = nn.BatchNorm1d(4)";
    let all = [
        "return self.norm(self.linear(x))",
        "x = self.linear(x)\nx = self.norm(x)\nreturn F.relu(x)",
        "return self.norm(self.linear(x)) + x",
        // The layer's output is used elsewhere.
        "x = self.linear(x)\nreturn self.norm(x) + x",
        "x = self.linear(x)\nx = self.norm(x) * x.sigmoid()\nreturn x",
        "y = self.linear(x)\nreturn self.norm(y) + y",
        "return self.norm(self.linear(x)) + self.linear(x)",
        "return self.norm(F.linear(x, self.linear.weight, self.linear.bias))",
    ];
    let shown = all.map(|forward| result_of(BIAS, &class(layers, forward)));
    expect![[r#"
        self.linear = nn.Linear(n, 4, bias=False)
        self.linear = nn.Linear(n, 4, bias=False)
        self.linear = nn.Linear(n, 4, bias=False)
        refused: no layer here is followed only by batch norm
        refused: no layer here is followed only by batch norm
        refused: no layer here is followed only by batch norm
        refused: no layer here is followed only by batch norm
        refused: no layer here is followed only by batch norm
    "#]]
    .assert_eq(&shown.concat());
    let outside = class(layers, all[0]) + "print(model.linear(torch.ones(1, 4)))\n";
    expect![[r#"
        refused: no layer here is followed only by batch norm
    "#]]
    .assert_eq(&result_of(BIAS, &outside));
    let own = class(&format!("{layers}\nnn.init.zeros_(self.linear.bias)"), all[0]);
    expect![[r#"
        refused: no layer here is followed only by batch norm
    "#]]
    .assert_eq(&result_of(BIAS, &own));
    let others = format!("{layers}\nself.head = nn.Linear(4, 2)\nnn.init.zeros_(self.head.bias)");
    let others = class(&others, "return self.head(self.norm(self.linear(x)))");
    expect![[r#"
        self.linear = nn.Linear(n, 4, bias=False)
    "#]]
    .assert_eq(&result_of(BIAS, &others));
}

#[test]
fn the_layout_is_preserved() {
    let script = format!(
        "{HEAD}# Größe: 4 → 8\nm = nn.Sequential(\n\tnn.Conv2d(\n\t\t3,\n\t\t8,\n\t\tkernel_size=3,  # größer\n\t),\n\t\
         nn.BatchNorm2d(8),\n\tnn.LeakyReLU(  # schräg\n\t\t0.1\n\t),\n\tnn.Conv2d(8, 8, 3),\n)\n"
    )
    .replace('\n', "\r\n");
    check(
        BIAS,
        &script,
        expect![[r#"
         		kernel_size=3,  # größer␍
        +		bias=False,␍
         	),␍
    "#]],
    );
    check(
        IN_PLACE,
        &script,
        expect![[r#"
         	nn.LeakyReLU(  # schräg␍
        -		0.1␍
        +		0.1,␍
        +		inplace=True␍
         	),␍
    "#]],
    );
}

#[test]
fn programs_that_save_states_get_a_note() {
    let script = format!(
        "{HEAD}m = nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4))\ntorch.save(m.state_dict(), 'm.pt')\n"
    );
    let (texts, entry) = project(&[("train.py", &script)]);
    let result = rewrite(&texts, &entry, &request_for(BIAS)).expect("made");
    expect!["existing checkpoints contain these biases: load them with `strict=False`, and subtract each from the running mean of its batch norm"].assert_eq(&result.notes.join("\n"));
}
