"""Trains a classifier on the data of many clients: a server averages the models that they send."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import ResNet

FIXED = "--fixed" in sys.argv


class Client:
    def __init__(self, cid, size=48):
        self.cid, self.size = cid, size

    def unpack(self, received_pkg):
        return copy.deepcopy(received_pkg["model"]).cuda()

    def train(self, model):
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(self.size // 16):
            images, labels = torch.rand(16, 3, 160, 160).cuda(), torch.randint(100, (16,)).cuda()
            model.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
        model.zero_grad()

    def pack(self, model):
        return {"model": model.cpu() if FIXED else model}

    def reply(self, svr_pkg):
        model = self.unpack(svr_pkg)
        self.train(model)
        return self.pack(model)


class Server:
    def __init__(self, model, clients):
        self.model, self.clients = model, clients

    def communicate(self, selected):
        return [self.clients[cid].reply({"model": self.model}) for cid in selected]

    @torch.no_grad()
    def aggregate(self, models):
        for name, value in self.model.state_dict().items():
            states = [model.state_dict()[name].to(value.device).float() for model in models]
            value.copy_(sum(states) / len(states))

    def iterate(self, proportion):
        selected = torch.randperm(len(self.clients))[: int(proportion * len(self.clients))].tolist()
        received = self.communicate(selected)
        self.aggregate([pkg["model"] for pkg in received])


server = Server(ResNet((3, 4, 23, 3), classes=100).cuda(), [Client(cid) for cid in range(60)])
for round in range(2):
    server.iterate(0.4)
    print("round", round)
