"""Train a model of people: `scripts/train.py fit --config scripts/configs/gridworld.yaml`."""

from bsdr_torch.errors import run_script
from bsdr_torch.training import TrainingCLI

if __name__ == "__main__":
    run_script(TrainingCLI)
