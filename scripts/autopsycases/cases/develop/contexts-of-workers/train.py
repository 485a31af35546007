"""Trains an emulator of weather whose data loaders ask for the GPU's number in each worker."""

import sys

import torch
from nets import UNet
from torch.utils.data import DataLoader, Dataset

FIXED = "--fixed" in sys.argv


class Distributed:
    """The place of this process among all of them."""

    def __init__(self, rank=0):
        self.rank = rank
        if torch.cuda.is_available() and not (FIXED and torch.utils.data.get_worker_info()):
            torch.cuda.set_device(rank)
            torch.cuda.synchronize()


def begin_worker(_):
    Distributed()


class Weather(Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.rand(8, 256, 512), torch.rand(8, 256, 512)


def loader_of(batch):
    return DataLoader(
        Weather(),
        batch,
        num_workers=2,
        worker_init_fn=begin_worker,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )


def main():
    Distributed()
    training, validation = loader_of(4), loader_of(4)
    batches, checks = iter(training), iter(validation)
    next(checks)
    model = UNet(channels=8, classes=8, width=48).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(3):
        before, after = (x.cuda() for x in next(batches))
        loss = (model(before) - after).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step)


if __name__ == "__main__":
    main()
