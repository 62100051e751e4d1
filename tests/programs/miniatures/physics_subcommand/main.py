import argparse

import torch


def laplacian(field, points):
    u = field(points).sum()  # top
    (gradient,) = torch.autograd.grad(u, points, create_graph=True)
    parts = [gradient[:, axis].sum() for axis in range(points.shape[1])]
    return sum(torch.autograd.grad(part, points, create_graph=True)[0] for part in parts)


def residual(field, points):
    points = points.requires_grad_()
    source = torch.sin(points).prod(dim=1, keepdim=True)
    return (laplacian(field, points).sum(dim=1, keepdim=True) + source).square().mean()


def sample():
    return torch.rand(512, 3)


def make_field():
    layer = torch.nn.Linear
    return torch.nn.Sequential(
        layer(3, 64), torch.nn.Tanh(), layer(64, 64), torch.nn.Tanh(), layer(64, 1)
    )


def train(args):
    field = make_field()
    print("before", max(residual(field, sample()).item() for _ in range(30)))
    optimizer = torch.optim.Adam(field.parameters(), lr=1e-3)
    for _ in range(args.steps):
        optimizer.zero_grad()
        loss = residual(field, sample())
        loss.backward()
        optimizer.step()
    torch.save(field.state_dict(), args.output)


def plot(args):
    field = make_field()
    field.load_state_dict(torch.load(args.output))
    print(field(sample()).mean().item())


def main():
    parser = argparse.ArgumentParser(description="Solves Poisson's equation.")
    parser.add_argument("--output", default="field.pt")
    commands = parser.add_subparsers(dest="command", required=True)
    plotting = commands.add_parser("plot")
    plotting.set_defaults(run=plot)
    training = commands.add_parser("train")
    training.add_argument("--steps", type=int, default=5000)
    training.set_defaults(run=train)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
