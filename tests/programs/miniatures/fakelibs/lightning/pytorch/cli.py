import argparse


class LightningCLI:
    def __init__(self, model_class, datamodule_class):
        from . import Trainer

        parser = argparse.ArgumentParser()
        commands = parser.add_subparsers(required=True, dest="subcommand", metavar="subcommand")
        fit = commands.add_parser("fit", help="Runs the full optimization routine.")
        fit.add_argument("--trainer.max_epochs", dest="max_epochs", type=int, default=20)
        commands.add_parser("test", help="Perform one evaluation epoch over the test set.")
        asked = parser.parse_args()
        if asked.subcommand == "fit":
            Trainer(asked.max_epochs).fit(model_class(), datamodule=datamodule_class())
