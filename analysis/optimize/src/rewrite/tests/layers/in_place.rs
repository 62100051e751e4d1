//! Activations in place.

use super::*;

#[test]
fn in_place_activations_in_sequences() {
    check_each(
        IN_PLACE,
        &[
            "m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 3))",
            "m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LeakyReLU(negative_slope=0.2), nn.MaxPool2d(2))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.ELU(), nn.Linear(8, 8))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.ELU(1.0, False), nn.Linear(8, 8))",
            "m = nn.Sequential(nn.GroupNorm(2, 8), nn.SELU())",
            "m = nn.Sequential(nn.LayerNorm(8), nn.CELU(alpha=2))",
            "m = nn.Sequential(nn.ConvTranspose2d(8, 8, 3), nn.ReLU())",
            "m = nn.Sequential(nn.InstanceNorm2d(8), nn.ReLU())",
        ],
        expect![[r#"
            m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LeakyReLU(0.2, inplace=True), nn.Conv2d(8, 1, 3))
            m = nn.Sequential(nn.Conv2d(3, 8, 3), nn.LeakyReLU(negative_slope=0.2, inplace=True), nn.MaxPool2d(2))
            m = nn.Sequential(nn.Linear(8, 8), nn.ELU(inplace=True), nn.Linear(8, 8))
            m = nn.Sequential(nn.Linear(8, 8), nn.ELU(1.0, True), nn.Linear(8, 8))
            m = nn.Sequential(nn.GroupNorm(2, 8), nn.SELU(inplace=True))
            m = nn.Sequential(nn.LayerNorm(8), nn.CELU(alpha=2, inplace=True))
            m = nn.Sequential(nn.ConvTranspose2d(8, 8, 3), nn.ReLU(inplace=True))
            m = nn.Sequential(nn.InstanceNorm2d(8), nn.ReLU(inplace=True))
        "#]],
    );
}

#[test]
fn activations_whose_input_or_output_is_needed_stay() {
    check_each(
        IN_PLACE,
        &[
            // The input belongs to the caller, or is passed on unchanged.
            "m = nn.Sequential(nn.LeakyReLU(0.2), nn.Linear(8, 8))",
            "m = nn.Sequential(nn.Dropout(0.5), nn.ReLU())",
            "m = nn.Sequential(nn.Flatten(), nn.ReLU())",
            "m = nn.Sequential(nn.Sigmoid(), nn.ReLU())",
            "m = nn.Sequential(block(8), nn.ReLU())",
            // The gradient does not follow from the output.
            "m = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(-0.2))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(slope))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.ELU(*options))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2, inplace=fast))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2, True))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.SiLU())",
            // Its output is overwritten.
            "m = nn.Sequential(nn.Linear(8, 8), nn.ELU(), nn.Dropout(0.5, inplace=True))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Dropout(0.5, inplace=True))",
            "m = nn.Sequential(nn.Linear(8, 8), nn.ReLU())\nm[0].register_forward_hook(show)",
        ],
        expect![[r#"
            refused: no activation here has an input that nothing else uses
            refused: no activation here has an input that nothing else uses
            refused: no activation here has an input that nothing else uses
            refused: no activation here has an input that nothing else uses
            refused: no activation here has an input that nothing else uses
            refused: train.py:5 takes negative_slope from `-0.2`; a negative slope has no gradient in place
            refused: train.py:5 takes negative_slope from `slope`; a negative slope has no gradient in place
            refused: train.py:5 passes starred arguments to the activation, which may already set inplace
            refused: train.py:5 takes inplace from `fast`: set it there
            refused: train.py:5 already works in place
            refused: no activation here has an input that nothing else uses
            refused: train.py:5 modifies a tensor in place, possibly the output that this activation needs for its gradient
            m = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True))
            refused: train.py:6 accesses single layers of the model, possibly the output that this one would overwrite
        "#]],
    );
}

#[test]
fn in_place_sums_may_change_an_activation_s_output() {
    let layers = "self.body = nn.Sequential(nn.Linear(n, n), nn.LeakyReLU(0.2))\n\
                  self.plain = nn.Sequential(nn.Linear(n, n), nn.ReLU())\n\
                  self.inner = nn.Sequential(nn.Linear(n, n), nn.ELU(), nn.Linear(n, n))";
    let of = |forward: &str| result_of(IN_PLACE, &class(layers, forward));
    expect![[r#"
        self.plain = nn.Sequential(nn.Linear(n, n), nn.ReLU(inplace=True))
        self.inner = nn.Sequential(nn.Linear(n, n), nn.ELU(inplace=True), nn.Linear(n, n))
    "#]]
    .assert_eq(&of("y = self.body(x)\ny += x\nreturn y"));
    expect![[r#"
        self.plain = nn.Sequential(nn.Linear(n, n), nn.ReLU(inplace=True))
        self.inner = nn.Sequential(nn.Linear(n, n), nn.ELU(inplace=True), nn.Linear(n, n))
    "#]]
    .assert_eq(&of("return self.body(x).mul_(2)"));
    expect![[r#"
        self.body = nn.Sequential(nn.Linear(n, n), nn.LeakyReLU(0.2, inplace=True))
        self.plain = nn.Sequential(nn.Linear(n, n), nn.ReLU(inplace=True))
        self.inner = nn.Sequential(nn.Linear(n, n), nn.ELU(inplace=True), nn.Linear(n, n))
    "#]]
    .assert_eq(&of("n = 0\nn += 1\nreturn self.body(x) + n"));
    // A called function does it.
    let calls = class(layers, "return double(self.body(x))")
        .replace("class Net", "def double(y):\n    y *= y\n    return y\n\n\nclass Net");
    expect![[r#"
        self.plain = nn.Sequential(nn.Linear(n, n), nn.ReLU(inplace=True))
        self.inner = nn.Sequential(nn.Linear(n, n), nn.ELU(inplace=True), nn.Linear(n, n))
    "#]]
    .assert_eq(&result_of(IN_PLACE, &calls));
}

#[test]
fn in_place_activations_called_by_a_method() {
    let layers = "self.conv = nn.Conv2d(n, 8, 3)\nself.norm = nn.BatchNorm2d(8)\nself.act = nn.LeakyReLU(0.2)";
    let all = [
        "return self.act(self.norm(self.conv(x)))",
        "x = self.conv(x)\nx = self.act(x)\nreturn self.norm(x)",
        "return F.leaky_relu(self.norm(self.conv(x)), 0.2)",
        "x = self.norm(self.conv(x))\nx = F.relu(x)\nreturn x",
        // These are not changed.
        "x = self.conv(x)\nreturn self.act(x) + x",
        "x = self.conv(x)\nx = self.act(x) * x\nreturn x",
        "y = self.conv(x)\nreturn self.act(y) + y",
        "return self.act(x)",
        "return F.relu(x)",
        "return F.leaky_relu(self.conv(x), self.slope)",
        "return torch.relu(self.conv(x))",
    ];
    let shown = all.map(|forward| result_of(IN_PLACE, &class(layers, forward)));
    expect![[r#"
        self.act = nn.LeakyReLU(0.2, inplace=True)
        self.act = nn.LeakyReLU(0.2, inplace=True)
        return F.leaky_relu(self.norm(self.conv(x)), 0.2, inplace=True)
        x = F.relu(x, inplace=True)
        refused: no activation here has an input that nothing else uses
        refused: no activation here has an input that nothing else uses
        refused: no activation here has an input that nothing else uses
        refused: no activation here has an input that nothing else uses
        refused: no activation here has an input that nothing else uses
        refused: train.py:13 takes negative_slope from `self.slope`; a negative slope has no gradient in place
        refused: no activation here has an input that nothing else uses
    "#]].assert_eq(&shown.concat());
}

#[test]
fn a_loop_over_blocks_does_not_access_their_layers() {
    let layers = "self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(n, n), nn.ReLU()) for _ in range(3)])";
    let of = |layers: &str| {
        result_of(IN_PLACE, &class(layers, "for one in self.blocks:\n    x = one(x)\nreturn x"))
    };
    expect![[r#"
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(n, n), nn.ReLU(inplace=True)) for _ in range(3)])
    "#]].assert_eq(&of(layers));
    expect![[r#"
        refused: train.py:11 accesses single layers of the model, possibly the output that this one would overwrite
    "#]].assert_eq(&of("self.blocks = nn.Sequential(nn.Linear(n, n), nn.ReLU())"));
    expect![[r#"
        refused: train.py:12 accesses single layers of the model, possibly the output that this one would overwrite
    "#]].assert_eq(&of(
        "self.other = nn.Sequential(nn.Linear(n, n), nn.ReLU())\nself.blocks = blocks(n)",
    ));
}
